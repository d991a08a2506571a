package secret

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// allowed lists the functions of sprig for templates: those whose result depends only on their
// arguments. It excludes functions that use the environment (env, expandenv), the network
// (getHostByName), the clock or the time zone (now, ago, date and similar) or randomness
// (rand..., shuffle, uuidv4, gen..., bcrypt, htpasswd, encryptAES), and the intentionally slow
// derivePassword. keys and values return a dict's content in the order of its keys, unlike in
// sprig.
var allowed = strings.Fields(`
	duration durationRound
	abbrev abbrevboth trunc trim upper lower title untitle substr repeat trimall trimAll trimSuffix trimPrefix nospace
	initials swapcase snakecase camelcase kebabcase wrap wrapWith contains hasPrefix hasSuffix quote squote cat indent
	nindent replace plural sha1sum sha256sum sha512sum adler32sum toString
	atoi int64 int float64 seq toDecimal split splitList splitn toStrings until untilStep
	add1 add sub div mod mul add1f addf subf divf mulf biggest max min maxf minf ceil floor round
	join sortAlpha default empty coalesce all any compact mustCompact
	fromJson toJson toPrettyJson toRawJson mustFromJson mustToJson mustToPrettyJson mustToRawJson ternary deepCopy mustDeepCopy
	typeOf typeIs typeIsLike kindOf kindIs deepEqual
	base dir clean ext isAbs osBase osClean osDir osExt osIsAbs
	b64enc b64dec b32enc b32dec
	tuple list dict get set unset hasKey pluck keys pick omit merge mergeOverwrite mustMerge mustMergeOverwrite values
	append push mustAppend mustPush prepend mustPrepend first mustFirst rest mustRest last mustLast initial mustInitial
	reverse mustReverse uniq mustUniq without mustWithout has mustHas slice mustSlice concat dig chunk mustChunk
	buildCustomCert decryptAES semver semverCompare fail
	regexMatch mustRegexMatch regexFindAll mustRegexFindAll regexFind mustRegexFind regexReplaceAll mustRegexReplaceAll
	regexReplaceAllLiteral mustRegexReplaceAllLiteral regexSplit mustRegexSplit regexQuoteMeta
	urlParse urlJoin
`)

// functions returns the functions for templates. Their calls spend from m.
func functions(m *meter) template.FuncMap {
	own := template.FuncMap{
		"keys": orderedKeys, "values": orderedValues,
		// The functions of text/template that produce text.
		"print": fmt.Sprint, "printf": fmt.Sprintf, "println": fmt.Sprintln,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	}
	all := sprig.TxtFuncMap()
	for name := range maps.Clone(all) {
		if !slices.Contains(allowed, name) {
			delete(all, name)
		}
	}
	maps.Copy(all, own)
	for name, fn := range all {
		all[name] = m.limit(fn, extra(name))
	}
	return all
}

func orderedKeys(dicts ...map[string]any) []string {
	var out []string
	for _, d := range dicts {
		out = append(out, sortedKeys(d)...)
	}
	return out
}

func orderedValues(d map[string]any) []any {
	var out []any
	for _, key := range sortedKeys(d) {
		out = append(out, d[key])
	}
	return out
}

// extra returns a function that estimates the cost of a call in addition to the weight of its
// arguments; nil if a function has no additional cost.
func extra(name string) func(args []reflect.Value) float64 {
	size := func(v reflect.Value) float64 { return float64(v.Len()) }
	switch strings.ToLower(strings.TrimPrefix(name, "must")) {
	case "repeat":
		return func(a []reflect.Value) float64 { return float64(a[0].Int()) * size(a[1]) }
	case "indent", "nindent":
		return func(a []reflect.Value) float64 {
			return float64(a[0].Int()) * float64(1+strings.Count(a[1].String(), "\n"))
		}
	case "replace":
		return func(a []reflect.Value) float64 {
			return float64(strings.Count(a[2].String(), a[0].String())) * size(a[1])
		}
	case "join":
		return func(a []reflect.Value) float64 { return size(a[0]) * items(a[1]) }
	case "wrapwith":
		return func(a []reflect.Value) float64 { return size(a[1]) * size(a[2]) }
	case "until", "untilstep", "seq":
		return func(a []reflect.Value) float64 { return turns(name, a) }
	case "regexmatch", "regexfindall", "regexfind", "regexsplit":
		return func(a []reflect.Value) float64 { return states(a[0].String()) * size(a[1]) }
	case "regexreplaceall", "regexreplaceallliteral":
		return func(a []reflect.Value) float64 { return (states(a[0].String()) + size(a[2])) * size(a[1]) }
	case "uniq": // each item is compared with all previous ones
		return func(a []reflect.Value) float64 { return items(a[0]) * items(a[0]) }
	case "without":
		return func(a []reflect.Value) float64 { return items(a[0]) * items(a[1]) }
	case "toprettyjson":
		return func(a []reflect.Value) float64 { return 2 * maxDepth * items(a[0]) }
	case "printf":
		return func(a []reflect.Value) float64 { return widest(a[0].String()) * size(a[1]) }
	}
	return nil
}

var repeated = regexp.MustCompile(`\{\d*,?\d*\}`)

// states estimates the size of a compiled regular expression, in which {1000} repeats its
// operand 1000 times.
func states(pattern string) float64 {
	most := 0.0
	for _, braces := range repeated.FindAllString(pattern, -1) {
		most = max(most, widest(braces))
	}
	return float64(len(pattern)) * (1 + most)
}

// items returns the number of values in a value, including itself and nested values.
func items(v reflect.Value) float64 {
	switch v.Kind() {
	case reflect.Interface:
		return items(v.Elem())
	case reflect.Slice, reflect.Array:
		n := 1.0
		for i := range v.Len() {
			n += items(v.Index(i))
		}
		return n
	case reflect.Map:
		n := 1.0
		for entries := v.MapRange(); entries.Next(); {
			n += items(entries.Value())
		}
		return n
	}
	return 1
}

// turns returns an upper estimate of the length of the list that until, untilStep or seq
// returns.
func turns(name string, args []reflect.Value) float64 {
	if args[0].Kind() == reflect.Slice { // of seq
		all := args[0]
		args = nil
		for i := range all.Len() {
			args = append(args, all.Index(i))
		}
	}
	var numbers []float64
	for _, arg := range args {
		numbers = append(numbers, float64(arg.Int()))
	}
	low, high, step := 0.0, 0.0, 1.0
	for _, n := range numbers {
		low, high = min(low, n), max(high, n)
	}
	switch {
	case high-low > 1<<40: // counting up could go round
		return high - low
	case len(numbers) == 3 && name == "seq":
		step = numbers[1]
	case len(numbers) == 3:
		step = numbers[2]
	}
	return (high - low) / max(step, -step, 1)
}

var width = regexp.MustCompile(`\d+`)

// widest estimates the maximum padding in bytes that a format adds to one argument.
func widest(format string) float64 {
	if strings.Contains(format, "*") {
		return 1e6 // the maximum width in package fmt
	}
	most := 0.0
	for _, digits := range width.FindAllString(format, -1) {
		n, err := strconv.ParseFloat(digits, 64)
		if err == nil {
			most = max(most, min(n, 1e6))
		}
	}
	return most
}
