package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	version  = "0.1.0"
	mibBytes = 1 << 20
	notKnown = "[N/A]"
	lost     = "[GPU is lost]"
)

// The compute capability of each GPU type, written by write_capabilities.py from the library's catalogue.
//
//go:embed compute_capabilities.json
var computeCapabilities []byte

// row is one line of output: a GPU among all, or a process on it.
type row struct {
	gpu     *gpu
	count   int
	process *process
}

// column has its unit in header and values; an empty value isn't known.
type column struct {
	name, header, unit string
	value              func(row) string
}

func unknown(row) string { return "" }

func plain(name string, value func(row) string) column { return column{name, name, "", value} }

func gpuName(r row) string { return r.gpu.Name }
func gpuUUID(r row) string { return r.gpu.UUID }

var gpuColumns = []column{
	plain("timestamp", timestamp),
	plain("driver_version", func(row) string { return "emugpu-" + version }),
	plain("count", func(r row) string { return strconv.Itoa(r.count) }),
	plain("index", func(r row) string { return fmt.Sprint(r.gpu.Index) }),
	plain("name", gpuName),
	{"gpu_name", "name", "", gpuName},
	plain("uuid", gpuUUID),
	{"gpu_uuid", "uuid", "", gpuUUID},
	plain("serial", unknown),
	plain("pci.bus_id", unknown),
	plain("vbios_version", unknown),
	plain("compute_cap", computeCap),
	plain("compute_mode", func(row) string { return "Default" }),
	plain("persistence_mode", unknown),
	plain("display_active", unknown),
	plain("mig.mode.current", migMode),
	plain("pstate", unknown),
	{"memory.total", "memory.total", "MiB", func(r row) string { return fmt.Sprint(mib(r.gpu.Memory)) }},
	{"memory.reserved", "memory.reserved", "MiB", unknown},
	{"memory.used", "memory.used", "MiB", used},
	{"memory.free", "memory.free", "MiB", free},
	{"utilization.gpu", "utilization.gpu", "%", load},
	{"utilization.memory", "utilization.memory", "%", unknown},
	plain("temperature.gpu", unknown),
	plain("temperature.memory", unknown),
	{"fan.speed", "fan.speed", "%", unknown},
	{"power.draw", "power.draw", "W", unknown},
	{"power.limit", "power.limit", "W", unknown},
	{"clocks.sm", "clocks.current.sm", "MHz", unknown},
	{"clocks.mem", "clocks.current.memory", "MHz", unknown},
}

var appColumns = []column{
	plain("timestamp", timestamp),
	plain("gpu_name", gpuName),
	plain("gpu_bus_id", unknown),
	plain("gpu_uuid", gpuUUID),
	plain("pid", func(r row) string { return fmt.Sprint(*r.process.PID) }),
	plain("process_name", processName),
	{"name", "process_name", "", processName},
	{"used_gpu_memory", "used_gpu_memory", "MiB", usedByProcess},
	{"used_memory", "used_gpu_memory", "MiB", usedByProcess},
}

func processName(r row) string   { return *r.process.Name }
func usedByProcess(r row) string { return fmt.Sprint(mib(*r.process.Used)) }

func timestamp(row) string { return time.Now().Format("2006/01/02 15:04:05.000") }

func used(r row) string {
	if r.gpu.Used == nil {
		return telemetry(r.gpu, "")
	}
	return telemetry(r.gpu, fmt.Sprint(mib(*r.gpu.Used)))
}

func free(r row) string {
	if r.gpu.Used == nil {
		return telemetry(r.gpu, "")
	}
	return telemetry(r.gpu, fmt.Sprint(mib(r.gpu.Memory)-mib(*r.gpu.Used)))
}

func load(r row) string {
	if r.gpu.Utilisation == nil {
		return telemetry(r.gpu, "")
	}
	return telemetry(r.gpu, fmt.Sprint(percent(*r.gpu.Utilisation)))
}

func telemetry(g *gpu, value string) string {
	if isLost(g) {
		return lost
	}
	return value
}

func isLost(g *gpu) bool { return g.Healthy != nil && !*g.Healthy }

func computeCap(r row) string {
	var capabilities map[string]string
	if json.Unmarshal(computeCapabilities, &capabilities) != nil {
		return ""
	}
	name := r.gpu.Name
	if r.gpu.Of != nil {
		name, _ = cut(name)
	}
	return capabilities[spelling(name)]
}

func migMode(r row) string {
	if r.gpu.Of == nil {
		return ""
	}
	return "Enabled"
}

// spelling is the form in which the catalogue compares names of GPU types.
func spelling(name string) string {
	return strings.NewReplacer("_", "-", " ", "-").Replace(strings.ToLower(strings.TrimSpace(name)))
}

func mib(amount int64) int64 { return (amount + mibBytes/2) / mibBytes }

func percent(share float64) int { return min(100, max(0, int(share*100+0.5))) }

func names(columns []column) []string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

// query is the lines of --format=csv, or what is wrong with the fields.
func query(fields string, columns []column, rows []row, options options) ([]string, string) {
	var wanted []column
	for _, name := range strings.Split(fields, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, c := range columns {
			if c.name == name {
				wanted, found = append(wanted, c), true
			}
		}
		if !found {
			return nil, `Field "` + name + `" is not a valid field to query; ` + nearest(name, names(columns))
		}
	}
	var lines []string
	if options.header {
		lines = append(lines, join(wanted, func(c column) string {
			if c.unit == "" {
				return c.header
			}
			return c.header + " [" + c.unit + "]"
		}))
	}
	for _, r := range rows {
		lines = append(lines, join(wanted, func(c column) string { return cell(c, r, options.units) }))
	}
	return lines, ""
}

func join(columns []column, text func(column) string) string {
	var parts []string
	for _, c := range columns {
		parts = append(parts, text(c))
	}
	return strings.Join(parts, ", ")
}

func cell(c column, r row, units bool) string {
	value := c.value(r)
	switch {
	case value == "":
		return notKnown
	case units && c.unit != "" && value != lost:
		return value + " " + c.unit
	}
	return value
}
