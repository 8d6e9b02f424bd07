package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLibcProblem(t *testing.T) {
	cases := []struct{ name, files, problem string }{
		{"musl", "lib/ld-musl-x86_64.so.1", "this image has musl"},
		{"musl beside glibc", "lib/ld-musl-x86_64.so.1 lib64/ld-linux-x86-64.so.2", ""},
		{"old", "lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc-2.28.so", "this image has 2.28"},
		{"old, 64", "lib64/ld-linux-x86-64.so.2 lib64/libc-2.17.so", "this image has 2.17"},
		{"oldest", "lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc-2.31.so", ""},
		{"new", "lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6", ""},
		{"none", "bin/sh", ""},
	}
	for _, each := range cases {
		root := t.TempDir()
		for _, file := range strings.Fields(each.files) {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		problem := libcProblem(root)
		if (each.problem == "") != (problem == "") || !strings.Contains(problem, each.problem) {
			t.Errorf("%s: %q", each.name, problem)
		}
	}
}
