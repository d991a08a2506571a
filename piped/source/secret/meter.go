package secret

import (
	"context"
	"errors"
	"math"
	"reflect"
)

const (
	// budget is what the templates of one application may spend together: one for
	// each byte and item that a function is given or makes and for each byte that is
	// written, and step for each call and each turn of a range. All of it is spent
	// within a second or two.
	budget = 1 << 24
	step   = 32
	// templateCall is what one {{template}} costs in addition to its body.
	templateCall = 4 << 10
	// maxDepth bounds how lists and dicts are nested. One that holds itself has no
	// end, and printing it would end the process.
	maxDepth = 32
)

var (
	errBudget = errors.New("the templates of the application compute too much; use smaller loops, texts and lists")
	errDepth  = errors.New("lists and dicts are nested too deeply, or hold themselves")
)

// meter bounds what templates compute. It is not for concurrent use. Its methods
// panic with the error when it is exceeded, which is what template functions may.
type meter struct {
	ctx  context.Context
	left int64
}

func (m *meter) spend(n int64) {
	if err := m.ctx.Err(); err != nil {
		panic(err)
	}
	if n > m.left {
		m.left = 0
		panic(errBudget)
	}
	m.left -= n
}

// weigh spends what a value weighs.
func (m *meter) weigh(v reflect.Value, depth int) {
	if depth > maxDepth {
		panic(errDepth)
	}
	switch v.Kind() {
	case reflect.String:
		m.spend(1 + int64(v.Len()))
	case reflect.Slice, reflect.Array:
		m.spend(1 + int64(v.Len()))
		for i := range v.Len() {
			m.weigh(v.Index(i), depth+1)
		}
	case reflect.Map:
		m.spend(1)
		for entries := v.MapRange(); entries.Next(); {
			m.weigh(entries.Key(), depth+1)
			m.weigh(entries.Value(), depth+1)
		}
	case reflect.Interface:
		m.weigh(v.Elem(), depth)
	default:
		m.spend(1)
	}
}

// limit returns fn, a function, as one that spends what its arguments weigh and
// what more, which may be nil, says before it is called.
func (m *meter) limit(fn any, more func(args []reflect.Value) float64) any {
	f := reflect.ValueOf(fn)
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	return reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
		m.spend(step)
		for _, arg := range args {
			m.weigh(arg, 0)
		}
		if more != nil {
			m.spend(int64(min(max(more(args), 0), math.MaxInt32)))
		}
		return call(args)
	}).Interface()
}
