package replace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// inJSON replaces the values at field, a path as in parsePath, and preserves all other bytes.
// A path that is not in the file, or that ends at an object or array, is an error.
func inJSON(content []byte, field, value string) ([]byte, error) {
	steps, err := parsePath(field)
	if err != nil {
		return nil, err
	}
	w := jsonWalk{content: content, dec: json.NewDecoder(bytes.NewReader(content)), value: value}
	w.dec.UseNumber()
	err = w.walk(steps, true)
	if err == nil {
		if _, end := w.dec.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more than one value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the file as JSON: %w", err)
	}
	switch {
	case w.holds:
		return nil, fmt.Errorf("jsonField %s holds other fields; name one that is a single value", field)
	case len(w.splices) == 0:
		return nil, notFound("jsonField", field)
	}
	return spliced(content, w.splices...), nil
}

// jsonWalk reads JSON token by token and records the replacements.
type jsonWalk struct {
	content []byte
	dec     *json.Decoder
	value   string
	splices []splice
	holds   bool // the path ends at an object or array
}

// walk reads the next value. If onPath is set, steps is the path from the value to the field.
func (w *jsonWalk) walk(steps []step, onPath bool) error {
	before := w.dec.InputOffset()
	token, err := w.dec.Token()
	if err != nil {
		return noEOF(err)
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		w.holds = w.holds || onPath && len(steps) == 0
		return w.members(token == json.Delim('['), steps, onPath)
	}
	if onPath && len(steps) == 0 {
		to := int(w.dec.InputOffset())
		from := int(before) + len(w.content[before:to]) - len(bytes.TrimLeft(w.content[before:to], " \t\r\n:,"))
		w.splices = append(w.splices, splice{from, to, jsonForm(token, w.value)})
	}
	return nil
}

// members reads the content and the closing token of an object or array, whose opening token
// has been read. If onPath is set, steps is the path from it to the field; otherwise it is
// skipped.
func (w *jsonWalk) members(array bool, steps []step, onPath bool) error {
	for i := 0; w.dec.More(); i++ {
		var name string
		if !array {
			token, err := w.dec.Token()
			if err != nil {
				return noEOF(err)
			}
			name, _ = token.(string)
		}
		next, on := follow(steps, onPath, array, i, name)
		if err := w.walk(next, on); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return noEOF(err)
}

// follow returns the steps that remain after the member with that index or name; on is false
// if the member is not on the path.
func follow(steps []step, onPath, array bool, index int, name string) (next []step, on bool) {
	if !onPath || len(steps) == 0 {
		return nil, false
	}
	s := steps[0]
	switch {
	case s.index == every, array && s.index == index, !array && s.isName() && s.name == name:
		return steps[1:], true
	}
	return steps, s.deep
}

// noEOF replaces io.EOF, since within a value it means that the file is incomplete.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// jsonForm returns the text of value in place of a token.
func jsonForm(was json.Token, value string) string {
	var number json.Number
	switch was.(type) {
	case json.Number:
		if json.Unmarshal([]byte(value), &number) == nil && number.String() == value {
			return value
		}
	case bool:
		if value == "true" || value == "false" {
			return value
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // encoding a string cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}
