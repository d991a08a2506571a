package manifest

import "bytes"

// document is one document of a YAML stream.
type document struct {
	text  []byte
	line  int // line in the file where text begins
	first int // line in the file where the content begins
}

// split splits a YAML stream at its document markers: --- and ... at the start of a line,
// where they cannot be part of a scalar. The rest of a line after --- belongs to the document.
// Documents without content are dropped.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var out []document
	begin, first, line := 0, 1, 1 // of the current document; of the scan
	emit := func(end int) {
		if skip, ok := content(data[begin:end]); ok {
			out = append(out, document{text: data[begin:end], line: first, first: first + skip})
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if marker(data[at:next], "---") {
			emit(at)
			begin, first = at+3, line
		} else if marker(data[at:next], "...") {
			emit(at)
			begin, first = next, line+1
		}
		at = next
	}
	emit(len(data))
	return out
}

// marker reports whether a line is a document marker.
func marker(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// content returns the number of lines before the content of a document; ok is false if it
// consists of blank lines, comments and directives only.
func content(text []byte) (skip int, ok bool) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return skip, true
		}
		skip++
	}
	return 0, false
}
