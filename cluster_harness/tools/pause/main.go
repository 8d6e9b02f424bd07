// Holds a pod's namespaces open: waits for ever, reaps the children it inherits, ends on SIGINT or SIGTERM.
//
// The kubelet's runtime starts one of these for each pod. With hostPID or a shared process namespace it is process 1
// of others, hence the reaping.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
