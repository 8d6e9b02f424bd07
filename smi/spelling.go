package main

import (
	"sort"
	"strings"
)

const mostNear = 3

// nearest names what a misspelt name may mean, or all that are known.
func nearest(name string, known []string) string {
	sorted := append([]string(nil), known...)
	sort.Strings(sorted)
	limit := max(2, len([]rune(name))/3)
	distances := map[string]int{}
	var near []string
	for _, other := range sorted {
		if distance := editDistance([]rune(name), []rune(other)); distance <= limit {
			distances[other] = distance
			near = append(near, other)
		}
	}
	if len(near) == 0 {
		return "known: " + strings.Join(sorted, ", ")
	}
	sort.SliceStable(near, func(i, j int) bool { return distances[near[i]] < distances[near[j]] })
	return "did you mean " + strings.Join(near[:min(mostNear, len(near))], " or ") + "?"
}

// editDistance counts letters to insert, delete or replace (Levenshtein 1966).
func editDistance(one, other []rune) int {
	before := make([]int, len(other)+1)
	for i := range before {
		before[i] = i
	}
	for i, letter := range one {
		now := []int{i + 1}
		for j, wanted := range other {
			change := before[j]
			if letter != wanted {
				change++
			}
			now = append(now, min(before[j+1]+1, now[j]+1, change))
		}
		before = now
	}
	return before[len(other)]
}
