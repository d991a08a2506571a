package strict

import (
	"fmt"
	"slices"
	"strings"
)

// maxSlip is the longest key that is taken for a slip.
const maxSlip = 64

// Suggest returns `; did you mean "x"?` for the candidate that word is most
// likely a slip of, or "".
func Suggest(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// nearest returns the candidate that key is most likely a slip of, or "".
func nearest(key string, candidates []string) string {
	if len(key) > maxSlip {
		return ""
	}
	best, bestDistance := "", len(key)/3+2
	for _, c := range candidates {
		d := distance(strings.ToLower(key), strings.ToLower(c))
		if d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// Slip returns the candidate that word, which is none of them, is a typing error of, or
// "".
func Slip(word string, candidates []string) string {
	if slices.Contains(candidates, word) {
		return ""
	}
	return slipOf(word, candidates)
}

// slipOf returns the candidate that key is a typing error of, or "". Unlike nearest it
// takes no other word for one: letters that are missing, too many, wrong or swapped
// count, at most one in a key of three letters, two in one of eight, else three.
func slipOf(key string, candidates []string) string {
	most := 3
	switch {
	case len(key) > maxSlip:
		return ""
	case len(key) <= 3:
		most = 1
	case len(key) <= 8:
		most = 2
	}
	best, bestDistance := "", most+1
	for _, c := range candidates {
		d := swapDistance(strings.ToLower(key), strings.ToLower(c))
		if d < bestDistance && d < len(c) && d < len(key) {
			best, bestDistance = c, d
		}
	}
	return best
}

// swapDistance is distance in which two neighbours that are swapped count once.
func swapDistance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, next[j]+1, row[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
