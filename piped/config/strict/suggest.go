package strict

import (
	"fmt"
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
			if len(key) > maxSlip {
				return ""
			}
			best, bestDistance = c, d
		}
	}
	return best
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
