package helm

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Bounds of what functions take and make.
const (
	maxCount   = 1_000_000 // of what until, randAlphaNum and the like make
	maxResult  = 16 << 20  // bytes of what one function makes
	maxNodes   = 1_000_000 // of a value that is written as text
	maxNesting = 1000      // of such a value
	maxSearch  = 1 << 28   // steps of one search; nothing can interrupt it
	maxCompare = 1 << 25   // comparisons of one call; nor these
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

// hazards are the functions that can make a large result of small arguments, and what is
// checked before they are called.
type hazards struct {
	counts     set // numbers say how much they make
	multiplies set // they make as much as the product of two arguments
	searches   set // they search for a regular expression in a text
	compares   set // they compare each item of a list with each of another
	merges     set // they change their first argument
	writes     set // they walk a value to its ends
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

// bounded returns f with checks of its arguments and of its result.
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

// before refuses arguments from which a function would make too much.
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

// after counts what a function made.
func (g *guard) after(result reflect.Value) error {
	n := weight(result)
	if n > maxResult {
		return limitf("a function makes %d bytes at once; expected at most %d", n, maxResult)
	}
	return g.spend(n)
}

// acyclic refuses to put a value into a map that holds this map: whatever walks
// it would never end.
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

// holds reports whether v is or contains the map at the address, or is too large to be
// searched.
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

// fits reports whether v has no more than left parts and is not nested deeper
// than deep.
func fits(v reflect.Value, left *int, deep int) bool {
	if *left--; *left < 0 || deep < 0 {
		return false
	}
	return !anyPart(bare(v), func(part reflect.Value) bool { return !fits(part, left, deep-1) })
}

// anyPart reports whether is is true of a part of a map or list.
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

// bare is what is in an interface.
func bare(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// weight is about how many bytes a value holds itself.
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

// states is about how large a regular expression is: what {1000} repeats is
// written out.
func states(pattern string) int64 {
	most := int64(0)
	if strings.Contains(pattern, "{") {
		for _, digits := range repeated.FindAllString(pattern, -1) {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err == nil {
				most = max(most, min(n, 1000)) // what a regular expression may repeat
			}
		}
	}
	return int64(len(pattern)) * (1 + most)
}

// comparisons is how often the parts of the first list are compared with the items
// of that list, or with the arguments after it.
func comparisons(args []reflect.Value) int64 {
	list := bare(args[0])
	if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
		return 0 // the function refuses it
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

// largest returns the largest number among arguments, by amount.
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

// product is that of the two arguments that are the largest numbers or have the
// most bytes.
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
