package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// oldestGlibc is the minor version of the oldest glibc 2 with which CUDA programs find the emulated libraries.
const oldestGlibc = 31

// libcProblem is why CUDA programs can't use the GPUs of a container with this root directory; empty if nothing speaks against it.
//
// The emulated libraries need glibc. Up to 2.33, its file has the version in its name.
func libcProblem(root string) string {
	for _, pattern := range []string{"lib/libc-2.*.so", "lib64/libc-2.*.so", "lib/*/libc-2.*.so"} {
		for _, path := range found(root, pattern) {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "libc-2."), ".so")
			if minor, err := strconv.Atoi(name); err == nil && minor < oldestGlibc {
				return fmt.Sprintf("CUDA programs need glibc 2.%d or later, and this image has 2.%d", oldestGlibc, minor)
			}
		}
	}
	glibc := len(found(root, "lib64/ld-linux-*")) + len(found(root, "lib/ld-linux-*"))
	if glibc == 0 && len(found(root, "lib/ld-musl-*")) > 0 {
		return "CUDA programs need glibc, and this image has musl; use one based on Debian, Ubuntu, Fedora, ..."
	}
	return ""
}

func found(root, pattern string) []string {
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return nil
	}
	return paths
}
