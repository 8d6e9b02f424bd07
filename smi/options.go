package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const helpText = `usage: nvidia-smi [-L] [-i ID] [--query-gpu=FIELDS | --query-compute-apps=FIELDS] [--format=csv] [-l S]

Shows the emulated GPUs of this container (emugpu); there is no hardware behind them.

  -L, --list-gpus               one line per GPU: name and UUID
  -i, --id=ID                   only these GPUs: indexes or UUIDs, comma-separated
      --query-gpu=FIELDS        these fields of each GPU, comma-separated
      --query-compute-apps=FIELDS  these fields of each process on a GPU
      --help-query-gpu          list the fields of --query-gpu
      --help-query-compute-apps list those of --query-compute-apps
      --format=csv[,noheader][,nounits]  how queries are printed
  -l, --loop=S                  show again every so many seconds, until Ctrl-C
      --version                 print the version
  -h, --help                    show this text
`

const maxSeconds = 1e8

type options struct {
	help, version, list, helpGPU, helpApps bool
	id, queryGPU, queryApps                *string
	header, units                          bool
	loop                                   time.Duration
	given                                  map[string]bool
}

// parse reads the arguments; the text says what is wrong with them.
func parse(arguments []string) (options, string) {
	parsed := options{header: true, units: true, given: map[string]bool{}}
	for len(arguments) > 0 {
		name, value, hasValue := strings.Cut(arguments[0], "=")
		arguments = arguments[1:]
		if flag := parsed.flag(name); flag != nil && !hasValue {
			*flag = true
			continue
		}
		if !takesValue(name) {
			return parsed, fmt.Sprintf("%q is not an option; see nvidia-smi --help", name)
		}
		if !hasValue {
			if len(arguments) == 0 {
				return parsed, name + " needs a value; see nvidia-smi --help"
			}
			value, arguments = arguments[0], arguments[1:]
		}
		if problem := parsed.set(name, value); problem != "" {
			return parsed, problem
		}
	}
	if parsed.queryGPU != nil && parsed.queryApps != nil {
		return parsed, "give one of --query-gpu and --query-compute-apps"
	}
	if parsed.given["--format"] && parsed.queryGPU == nil && parsed.queryApps == nil {
		return parsed, "--format is about queries; give --query-gpu or --query-compute-apps with it"
	}
	return parsed, ""
}

// longName is how an option is called in what is said about it.
func longName(name string) string {
	switch name {
	case "-i":
		return "--id"
	case "-l":
		return "--loop"
	}
	return name
}

func (o *options) flag(name string) *bool {
	switch name {
	case "-h", "--help":
		return &o.help
	case "--version":
		return &o.version
	case "-L", "--list-gpus":
		return &o.list
	case "--help-query-gpu":
		return &o.helpGPU
	case "--help-query-compute-apps":
		return &o.helpApps
	}
	return nil
}

func takesValue(name string) bool {
	switch name {
	case "-i", "--id", "--query-gpu", "--query-compute-apps", "--format", "-l", "--loop":
		return true
	}
	return false
}

func (o *options) set(name, value string) string {
	name = longName(name)
	if o.given[name] {
		return name + " is given twice; give it once (lists are comma-separated)"
	}
	o.given[name] = true
	switch name {
	case "--id":
		o.id = &value
	case "--query-gpu":
		o.queryGPU = &value
	case "--query-compute-apps":
		o.queryApps = &value
	case "--format":
		return o.setFormat(value)
	default:
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxSeconds {
			return "--loop must be a number of seconds above 0"
		}
		o.loop = time.Duration(seconds * float64(time.Second))
	}
	return ""
}

func (o *options) setFormat(value string) string {
	o.header, o.units = true, true
	csv := false
	for _, part := range strings.Split(value, ",") {
		switch part {
		case "csv":
			csv = true
		case "noheader":
			o.header = false
		case "nounits":
			o.units = false
		default:
			return wrongFormat(value)
		}
	}
	if !csv {
		return wrongFormat(value)
	}
	return ""
}

func wrongFormat(value string) string {
	return `"` + value + `" is not a format; give csv, csv,noheader, csv,nounits or csv,noheader,nounits`
}
