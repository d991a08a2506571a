package git

import (
	"bytes"
	"strings"

	"github.com/epiclabs-io/diff3"
)

// Bounds of merges by line: a comparison costs up to the square of the differing lines, which
// may come from any pull request.
const (
	maxMergedFile  = 4 << 20 // bytes of each side
	maxMergedLines = 20_000  // of each side, without the common beginning and end
	maxMergedPairs = 20_000_000
	binaryHead     = 8000 // bytes that Git searches for a zero byte
)

// mergeText merges two versions of a text, ours and theirs, that come from base, by line. Line
// ends, also a missing last one, stay. why is the reason for which they cannot be merged, ""
// if they can.
func mergeText(base, ours, theirs []byte) (merged []byte, why string) {
	for _, text := range [][]byte{base, ours, theirs} {
		if bytes.IndexByte(text[:min(len(text), binaryHead)], 0) >= 0 {
			return nil, "is binary and changed on both sides"
		}
	}
	all := lines(ours)
	b, o, t := lines(base), all, lines(theirs)
	head, tail := shared(b, o, t)
	b, o, t = b[head:len(b)-tail], o[head:len(o)-tail], t[head:len(t)-tail]
	if max(len(b), len(o), len(t)) > maxMergedLines || pairs(b, o)+pairs(b, t) > maxMergedPairs {
		return nil, "is too large to merge what both sides changed"
	}
	var out bytes.Buffer
	write := func(list []string) {
		for _, line := range list {
			out.WriteString(line)
		}
	}
	write(all[:head])
	for _, part := range diff3.Diff3Merge(o, b, t, true) {
		if part.Conflict != nil {
			return nil, "has lines that both sides changed"
		}
		write(part.Ok)
	}
	write(all[len(all)-tail:])
	return out.Bytes(), ""
}

// lines splits a text after each line end.
func lines(text []byte) []string {
	list := strings.SplitAfter(string(text), "\n")
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// shared counts the lines with which all three begin and, after those, end. One line more on
// either side is left to the comparison, as the context of a change.
func shared(a, b, c []string) (head, tail int) {
	n := min(len(a), len(b), len(c))
	for head < n && a[head] == b[head] && b[head] == c[head] {
		head++
	}
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] && b[len(b)-1-tail] == c[len(c)-1-tail] {
		tail++
	}
	return max(0, head-1), max(0, tail-1)
}

// pairs counts the pairs of equal lines of two lists.
func pairs(a, b []string) int {
	count := map[string]int{}
	for _, line := range a {
		count[line]++
	}
	n := 0
	for _, line := range b {
		n += count[line]
	}
	return n
}
