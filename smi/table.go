package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

var widths = [3]int{48, 24, 20}

const inner = 48 + 24 + 20 + 2

// table is the lines that are shown without options: GPUs and processes, plainly marked as emulated.
func table(gpus []gpu) []string {
	title := fmt.Sprintf(" NVIDIA-SMI (emugpu %s)", version)
	rule := "+" + filled("-") + "+"
	lines := []string{
		"+" + strings.Repeat("-", inner) + "+",
		"|" + title + right("EMULATED GPUs: no hardware ", inner-utf8.RuneCountInString(title)) + "|",
		rule,
		tableRow(" GPU  Name", "Memory-Usage ", "GPU-Util  State "),
		tableRow("      UUID", "", ""),
		"|" + filled("=") + "|",
	}
	for i := range gpus {
		g := &gpus[i]
		lines = append(lines,
			tableRow(fmt.Sprintf(" %3d  %s", g.Index, g.Name), memory(g)+" ", fmt.Sprintf("%s  %5s ", tableLoad(g), state(g))),
			tableRow("      "+g.UUID, "", ""),
			rule,
		)
	}
	return append(lines, processes(gpus)...)
}

func processes(gpus []gpu) []string {
	lines := []string{
		"",
		"+" + strings.Repeat("-", inner) + "+",
		"|" + left(" Processes:", inner) + "|",
		wide("  GPU        PID   Process name", "GPU Memory Usage "),
		"|" + strings.Repeat("=", inner) + "|",
	}
	none, known := true, false
	for _, g := range gpus {
		known = known || g.Used != nil
		for _, p := range g.Processes {
			none = false
			lines = append(lines, wide(fmt.Sprintf("  %3d %10d   %s", g.Index, *p.PID, *p.Name), fmt.Sprintf(" %dMiB ", mib(*p.Used))))
		}
	}
	switch {
	case none && known:
		lines = append(lines, wide("  No running processes found", ""))
	case none:
		lines = append(lines, wide("  N/A", ""))
	}
	return append(lines, "+"+strings.Repeat("-", inner)+"+")
}

func filled(sign string) string {
	var parts []string
	for _, width := range widths {
		parts = append(parts, strings.Repeat(sign, width))
	}
	return strings.Join(parts, "+")
}

func tableRow(first, second, third string) string {
	return "|" + left(first, widths[0]) + "|" + right(second, widths[1]) + "|" + right(third, widths[2]) + "|"
}

// wide is one line over the whole width; what is too long gives way to the right part.
func wide(first, second string) string {
	return "|" + left(first, inner-utf8.RuneCountInString(second)) + second + "|"
}

// left is the text cut or filled to `width` signs.
func left(text string, width int) string {
	runes := []rune(text)
	if len(runes) > width {
		return string(runes[:width])
	}
	return text + strings.Repeat(" ", width-len(runes))
}

func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}

func memory(g *gpu) string {
	used := "N/A"
	if g.Used != nil && !isLost(g) {
		used = fmt.Sprintf("%dMiB", mib(*g.Used))
	}
	return fmt.Sprintf("%s / %dMiB", used, mib(g.Memory))
}

func tableLoad(g *gpu) string {
	if g.Utilisation == nil || isLost(g) {
		return "N/A"
	}
	return fmt.Sprintf("%d%%", percent(*g.Utilisation))
}

func state(g *gpu) string {
	switch {
	case g.Healthy == nil:
		return "N/A"
	case *g.Healthy:
		return "ok"
	}
	return "LOST"
}
