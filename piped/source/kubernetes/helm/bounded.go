package helm

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Limits of the arguments and results of template functions.
const (
	maxCount   = 1_000_000 // numeric arguments of until, randAlphaNum and similar functions
	maxResult  = 16 << 20  // bytes of the result of one call
	maxNodes   = 1_000_000 // nodes of an argument that is traversed
	maxNesting = 1000      // nesting of such an argument
	maxSearch  = 1 << 28   // estimated steps of one regexp search, which cannot be interrupted
	maxCompare = 1 << 25   // comparisons of one call, which cannot be interrupted
)

// set is a set of function names.
type set map[string]bool

func names(all ...string) set {
	out := set{}
	for _, name := range all {
		out[name] = true
	}
	return out
}

// hazards groups the functions that can use much time or memory for small arguments by the
// check of their arguments.
type hazards struct {
	counts     set // the size of the result is a numeric argument
	multiplies set // the size of the result is up to the product of two arguments
	searches   set // search for a regular expression in a text
	compares   set // compare each item of a list with each item of another list
	merges     set // change their first argument
	writes     set // traverse a value completely
}

func newHazards() hazards {
	return hazards{
		counts: names("until", "untilStep", "seq", "randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes"),
		multiplies: names("repeat", "indent", "nindent", "replace", "join", "regexReplaceAll", "mustRegexReplaceAll",
			"regexReplaceAllLiteral", "mustRegexReplaceAllLiteral", "wrapWith"),
		searches: names("regexMatch", "mustRegexMatch", "regexFind", "mustRegexFind", "regexFindAll", "mustRegexFindAll",
			"regexSplit", "mustRegexSplit", "regexReplaceAll", "mustRegexReplaceAll", "regexReplaceAllLiteral", "mustRegexReplaceAllLiteral"),
		compares: names("uniq", "mustUniq", "without", "mustWithout"),
		merges:   names("set", "merge", "mustMerge", "mergeOverwrite", "mustMergeOverwrite"),
		writes: names("toYaml", "mustToYaml", "toYamlPretty", "toJson", "mustToJson", "toPrettyJson", "mustToPrettyJson", "toRawJson",
			"mustToRawJson", "toToml", "mustToToml", "print", "printf", "println", "toString", "toStrings", "quote", "squote", "cat",
			"deepCopy", "mustDeepCopy", "deepEqual", "html", "js", "urlquery"),
	}
}

// bounded returns a function that calls f and checks its arguments and its result. The
// returned function always has an error as second result.
func (g *guard) bounded(name string, f any) any {
	fn := reflect.ValueOf(f)
	typ := fn.Type()
	in := make([]reflect.Type, typ.NumIn())
	for i := range in {
		in[i] = typ.In(i)
	}
	failure := reflect.TypeFor[error]()
	out := []reflect.Type{typ.Out(0), failure}
	call := fn.Call
	if typ.IsVariadic() {
		call = fn.CallSlice
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, typ.IsVariadic()), func(args []reflect.Value) []reflect.Value {
		err := g.before(name, args)
		var result reflect.Value
		if err == nil {
			results := call(args)
			result = results[0]
			if len(results) == 2 && !results[1].IsNil() {
				err = results[1].Interface().(error)
			} else {
				err = g.after(result)
			}
		}
		if err != nil {
			return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
		}
		return []reflect.Value{result, reflect.Zero(failure)}
	}).Interface()
}

// before returns an error if the arguments of a function exceed its limits, or if the
// rendering has ended.
func (g *guard) before(name string, args []reflect.Value) error {
	if err := g.alive(); err != nil {
		return err
	}
	switch {
	case g.hazards.counts[name]:
		if n := largest(args); n > maxCount {
			return limitf("%s is called with %d; expected at most %d", name, n, maxCount)
		}
	case g.hazards.multiplies[name]:
		if n := product(args); n > 4*maxResult {
			return limitf("%s would make up to %d bytes; expected at most %d", name, n, 4*maxResult)
		}
	case g.hazards.merges[name]:
		return acyclic(name, args)
	case g.hazards.compares[name]:
		if n := comparisons(args); n > maxCompare {
			return limitf("%s would make up to %d comparisons; expected at most %d", name, n, maxCompare)
		}
	}
	if g.hazards.searches[name] {
		if n := states(args[0].String()) * int64(args[1].Len()); n > maxSearch {
			return limitf("%s would take up to %d steps; expected at most %d", name, n, maxSearch)
		}
	}
	if !g.hazards.writes[name] {
		return nil
	}
	for left := maxNodes; len(args) > 0; args = args[1:] {
		if !fits(args[0], &left, maxNesting) {
			return limitf("%s is called with a value of more than %d parts", name, maxNodes)
		}
	}
	return nil
}

// after checks the size of a function's result and adds it to the total of the rendering.
func (g *guard) after(result reflect.Value) error {
	n := weight(result)
	if n > maxResult {
		return limitf("a function makes %d bytes at once; expected at most %d", n, maxResult)
	}
	return g.spend(n)
}

// acyclic returns an error if a function would put the map args[0] into itself, since
// traversing it would never end.
func acyclic(name string, args []reflect.Value) error {
	into := bare(args[0])
	left := maxNodes
	for _, arg := range args[1:] {
		if holds(arg, into.Pointer(), &left) {
			return limitf("%s would put a value into itself, or has more than %d parts", name, maxNodes)
		}
	}
	return nil
}

// holds reports whether v is or contains the map at the address, or has more than left nodes.
func holds(v reflect.Value, address uintptr, left *int) bool {
	v = bare(v)
	if *left--; *left < 0 {
		return true
	}
	if v.Kind() == reflect.Map && v.Pointer() == address {
		return true
	}
	return anyPart(v, func(part reflect.Value) bool { return holds(part, address, left) })
}

// fits reports whether v has at most *left nodes and is nested at most deep levels. It
// decreases *left by the number of nodes.
func fits(v reflect.Value, left *int, deep int) bool {
	if *left--; *left < 0 || deep < 0 {
		return false
	}
	return !anyPart(bare(v), func(part reflect.Value) bool { return !fits(part, left, deep-1) })
}

// anyPart reports whether is returns true for a value of a map or an item of a list.
func anyPart(v reflect.Value, is func(reflect.Value) bool) bool {
	switch v.Kind() {
	case reflect.Map:
		for parts := v.MapRange(); parts.Next(); {
			if is(parts.Value()) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		for i := range v.Len() {
			if is(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// bare returns the value inside an interface.
func bare(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// weight returns the approximate size of a string or list in bytes, without the data that
// items point to; 0 for other values.
func weight(v reflect.Value) int {
	switch v = bare(v); v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Slice:
		return v.Len() * int(v.Type().Elem().Size())
	}
	return 0
}

var repeated = regexp.MustCompile(`\d+`)

// states estimates the size of a compiled regular expression, in which {1000} repeats its
// operand 1000 times.
func states(pattern string) int64 {
	most := int64(0)
	if strings.Contains(pattern, "{") {
		for _, digits := range repeated.FindAllString(pattern, -1) {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err == nil {
				most = max(most, min(n, 1000)) // the maximum that package regexp allows
			}
		}
	}
	return int64(len(pattern)) * (1 + most)
}

// comparisons estimates how many comparisons a function makes between the nodes of a list and
// the items of that list or, if there are any, the further arguments.
func comparisons(args []reflect.Value) int64 {
	list := bare(args[0])
	if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
		return 0 // the function returns an error
	}
	left := maxNodes
	if !fits(list, &left, maxNesting) {
		return maxNodes * maxNodes
	}
	with := list.Len()
	if len(args) > 1 {
		with = args[1].Len()
	}
	return int64(maxNodes-left) * int64(with)
}

// largest returns the largest absolute value of the integers among arguments.
func largest(args []reflect.Value) (most int64) {
	for _, arg := range args {
		switch arg = bare(arg); {
		case arg.CanInt():
			most = max(most, arg.Int(), -arg.Int())
		case arg.Kind() == reflect.Slice: // of the last, variadic parameter
			for i := range arg.Len() {
				most = max(most, largest([]reflect.Value{arg.Index(i)}))
			}
		}
	}
	return most
}

// product returns the product of the two largest arguments, as numbers or by their bytes. It
// is at most 1<<62.
func product(args []reflect.Value) int64 {
	first, second := int64(1), int64(1)
	for _, arg := range args {
		n := max(int64(weight(arg)), largest([]reflect.Value{arg}))
		switch {
		case n > first:
			first, second = n, first
		case n > second:
			second = n
		}
	}
	if first > 0 && second > (1<<62)/first {
		return 1 << 62
	}
	return first * second
}
