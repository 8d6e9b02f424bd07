// The nvidia-smi of job containers: what `emugpu smi` shows, in one static program for images without Python.
//
// It asks the node's sharing manager by the token of the container's grant; the same bytes come out of emugpu/smi, which
// the tests check with shared golden files. Exit codes: 0, 2 for a wrong option, 6 where no GPU has the id that was asked
// for, 9 where the container has no emulated GPU.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	exitUsage    = 2
	exitNotFound = 6
	exitNoDriver = 9

	noGPU    = "NVIDIA-SMI has failed because there is no emulated GPU here. A container gets one by emuGPU in its resources.limits, other programs by emugpu run."
	notFound = "No devices were found"

	cudaVariable = "EMUGPU_CUDA_SETTINGS" // set where the container may run CUDA programs
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	options, problem := parse(arguments)
	if problem != "" {
		return usage(problem)
	}
	switch {
	case options.help:
		fmt.Print(helpText)
		return 0
	case options.version:
		fmt.Printf("NVIDIA-SMI (emulated by emugpu) %s\n", version)
		return 0
	case options.helpGPU:
		fmt.Println(strings.Join(names(gpuColumns), "\n"))
		return 0
	case options.helpApps:
		fmt.Println(strings.Join(names(appColumns), "\n"))
		return 0
	}
	for {
		status := show(options)
		if options.loop == 0 || status != 0 {
			return status
		}
		time.Sleep(options.loop)
	}
}

func show(options options) int {
	gpus, note := picture()
	if len(gpus) == 0 && note != answered {
		fmt.Println(noGPU)
		return exitNoDriver
	}
	if note != answered {
		fmt.Fprintln(os.Stderr, "nvidia-smi: "+note)
	}
	chosenGPUs := selected(gpus, options.id)
	if len(chosenGPUs) == 0 {
		fmt.Println(notFound)
		return exitNotFound
	}
	lines, problem := lines(options, chosenGPUs, len(gpus))
	if problem != "" {
		return usage(problem)
	}
	if len(lines) > 0 {
		fmt.Println(strings.Join(lines, "\n"))
	}
	if problem := libcProblem("/"); problem != "" && os.Getenv(cudaVariable) != "" && !options.list && options.queryGPU == nil && options.queryApps == nil {
		fmt.Fprintln(os.Stderr, "nvidia-smi: "+problem)
	}
	return 0
}

// lines is what to print, or what is wrong with the query.
func lines(options options, gpus []gpu, count int) ([]string, string) {
	switch {
	case options.list:
		return listed(gpus), ""
	case options.queryGPU != nil:
		var rows []row
		for i := range gpus {
			rows = append(rows, row{gpu: &gpus[i], count: count})
		}
		return query(*options.queryGPU, gpuColumns, rows, options)
	case options.queryApps != nil:
		var rows []row
		for i := range gpus {
			for j := range gpus[i].Processes {
				rows = append(rows, row{gpu: &gpus[i], count: count, process: &gpus[i].Processes[j]})
			}
		}
		return query(*options.queryApps, appColumns, rows, options)
	}
	return table(gpus), ""
}

// migSeparator is between a GPU type and the profile to which it is cut, in the name of an instance.
const migSeparator = "-MIG-"

// listed is a line for each GPU; one that is cut has a line for each of its MIG instances below it.
func listed(gpus []gpu) []string {
	var lines []string
	seen := map[string]int{}
	for _, g := range gpus {
		if g.Of == nil {
			lines = append(lines, fmt.Sprintf("GPU %d: %s (UUID: %s)", g.Index, g.Name, g.UUID))
			continue
		}
		name, profile := cut(g.Name)
		uuid := *g.Of.UUID
		if seen[uuid] == 0 {
			lines = append(lines, fmt.Sprintf("GPU %d: %s (UUID: %s)", *g.Of.Index, name, uuid))
		}
		lines = append(lines, fmt.Sprintf("  MIG %-12sDevice %2d: (UUID: %s)", profile, seen[uuid], g.UUID))
		seen[uuid]++
	}
	return lines
}

// cut is the name of the whole GPU's type, and the profile; without a profile the first is empty.
func cut(name string) (string, string) {
	at := strings.LastIndex(name, migSeparator)
	if at < 0 {
		return "", name
	}
	return name[:at], name[at+len(migSeparator):]
}

func selected(gpus []gpu, ids *string) []gpu {
	if ids == nil {
		return gpus
	}
	wanted := map[string]bool{}
	for _, part := range strings.Split(*ids, ",") {
		wanted[strings.TrimSpace(part)] = true
	}
	var found []gpu
	for _, g := range gpus {
		if wanted[fmt.Sprint(g.Index)] || wanted[g.UUID] {
			found = append(found, g)
		}
	}
	return found
}

func usage(problem string) int {
	fmt.Fprintln(os.Stderr, "nvidia-smi: "+problem)
	return exitUsage
}
