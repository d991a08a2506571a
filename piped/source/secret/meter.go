package secret

import (
	"context"
	"errors"
	"math"
	"reflect"
)

const (
	// budget is the total cost that the templates of one application may have: one per byte
	// and item of arguments, estimated results and output, and step per function call and
	// per iteration of a range. Spending all of it takes a second or two.
	budget = 1 << 24
	step   = 32
	// templateCall is the cost of one {{template}} in addition to its body.
	templateCall = 4 << 10
	// maxDepth is the maximum nesting of lists and dicts. Printing one that contains itself
	// would overflow the stack and end the process.
	maxDepth = 32
)

var (
	errBudget = errors.New("the templates of the application compute too much; use smaller loops, texts and lists")
	errDepth  = errors.New("lists and dicts are nested too deeply, or hold themselves")
)

// meter limits the computations of templates. It is not safe for concurrent use. Its methods
// panic with the error if the limit is exceeded; text/template recovers such panics of
// functions.
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

// weigh spends the size of a value: its bytes and items, including nested ones.
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

// limit wraps the function fn. Before each call, the wrapper spends step, the weight of the
// arguments, and the cost that more returns, unless more is nil.
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
