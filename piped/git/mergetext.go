package git

import (
	"bytes"
	"strings"

	"github.com/epiclabs-io/diff3"
)

// Bounds of merges by line. The cost of a comparison grows with the square of the number of
// differing lines, and any pull request can provide them.
const (
	maxMergedFile  = 4 << 20 // bytes of each side
	maxMergedLines = 20_000  // of each side, without the common beginning and end
	maxMergedPairs = 20_000_000
	binaryHead     = 8000 // the first bytes, in which Git looks for a zero byte
)

// mergeText merges, by line, ours and theirs, two versions of base. It preserves line ends,
// also a missing one at the end. why is the reason why they cannot be merged, "" if they can.
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

// lines splits a text into lines, each with its line end.
func lines(text []byte) []string {
	list := strings.SplitAfter(string(text), "\n")
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// shared returns the number of lines that all three lists have in common at the beginning and
// at the end. It leaves one common line on either side as context for the comparison.
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

// pairs returns the number of pairs of equal lines, one from each list.
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
