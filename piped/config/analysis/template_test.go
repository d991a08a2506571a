package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/strict"
)

func limit(v float64) *float64 { return &v }

// TestResolve: what an entry says wins over its template, which wins over the
// defaults.
func TestResolve(t *testing.T) {
	minute, second := strict.Duration(time.Minute), strict.Duration(time.Second)
	from := Templates{
		Metrics: map[string]Metric{"errors": {
			Check:    Check{Interval: minute, FailureLimit: 3, SkipOnNoData: true, Timeout: second},
			Provider: "p", Query: "q", Strategy: CanaryPrimary, Deviation: High, Expected: Expected{Max: limit(1)},
			CanaryArgs: map[string]string{"a": "c"}, BaselineArgs: map[string]string{"a": "b"}, PrimaryArgs: map[string]string{"a": "p"},
		}},
		Logs:  map[string]Log{"panics": {Check: Check{Interval: minute}, Provider: "loki", Query: "panic"}},
		HTTPS: map[string]HTTP{"health": {Check: Check{Name: "well", Interval: minute}, URL: "http://a", Method: "HEAD", ExpectedCode: 204, ExpectedResponse: "x", Headers: []Header{{Key: "A"}}}},
	}
	ref := func(name string) TemplateRef { return TemplateRef{Name: name, AppArgs: map[string]string{"x": "y"}} }
	got, err := Checks{
		Metrics: []Metric{
			{Check: Check{Template: ref("errors")}},
			{
				Check:    Check{Template: ref("errors"), Name: "mine", Interval: 2 * second, FailureLimit: 1, Timeout: 2 * second},
				Provider: "own", Query: "own", Strategy: Threshold, Deviation: Low, Expected: Expected{Min: limit(2)}, CanaryArgs: map[string]string{"b": "c"},
			},
			{Check: Check{Interval: minute}, Provider: "p", Query: "q", Expected: Expected{Max: limit(1)}},
		},
		Logs:  []Log{{Check: Check{Template: ref("panics"), Interval: 2 * second}}},
		HTTPS: []HTTP{{Check: Check{Template: ref("health")}}, {Check: Check{Interval: minute}, URL: "http://b"}},
	}.Resolve(from, 5*minute)
	if err != nil {
		t.Fatal(err)
	}
	errors := from.Metrics["errors"]
	errors.Check.Name, errors.Check.Template = "errors", ref("errors")
	mine := errors
	mine.Check = Check{Template: ref("errors"), Name: "mine", Interval: 2 * second, FailureLimit: 1, SkipOnNoData: true, Timeout: 2 * second}
	mine.Provider, mine.Query, mine.Strategy, mine.Deviation, mine.Expected = "own", "own", Threshold, Low, Expected{Min: limit(2)}
	mine.CanaryArgs = map[string]string{"b": "c"}
	plain := Metric{Check: Check{Interval: minute, Timeout: defaultTimeout}, Provider: "p", Query: "q", Strategy: Threshold, Deviation: Either, Expected: Expected{Max: limit(1)}}
	panics := Log{Check: Check{Name: "panics", Interval: 2 * second, Timeout: defaultTimeout, Template: ref("panics")}, Provider: "loki", Query: "panic"}
	health := from.HTTPS["health"]
	health.Check.Timeout, health.Check.Template = defaultTimeout, ref("health")
	other := HTTP{Check: Check{Interval: minute, Timeout: defaultTimeout}, URL: "http://b", Method: "GET", ExpectedCode: 200}
	want := Checks{Metrics: []Metric{errors, mine, plain}, Logs: []Log{panics}, HTTPS: []HTTP{health, other}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestResolveRefuses: every problem of what came together is named.
func TestResolveRefuses(t *testing.T) {
	minute := strict.Duration(time.Minute)
	from := Templates{Metrics: map[string]Metric{"empty": {}, "slow": {Check: Check{Interval: 10 * minute}, Provider: "p", Query: "q", Expected: Expected{Min: limit(1)}}}}
	_, err := Checks{
		Metrics: []Metric{
			{Check: Check{Template: TemplateRef{Name: "empty"}}},
			{Check: Check{Template: TemplateRef{Name: "slow"}}},
			{Check: Check{Template: TemplateRef{Name: "slow"}, Interval: -minute}},
			{Check: Check{Template: TemplateRef{Name: "none"}}},
			{},
		},
		Logs:  []Log{{Check: Check{Template: TemplateRef{Name: "none"}}}},
		HTTPS: []HTTP{{Check: Check{Interval: minute}, URL: "x", Method: "get", ExpectedCode: 1, ExpectedResponse: "/(/"}},
	}.Resolve(from, 5*minute)
	want := []string{
		`metrics[0] with template "empty": interval: required; neither the stage nor the template says it`,
		`metrics[0] with template "empty": provider: required; neither the stage nor the template says it`,
		`metrics[0] with template "empty": query: required; neither the stage nor the template says it`,
		`metrics[0] with template "empty": expected: required with strategy THRESHOLD; expected min, max or both`,
		`metrics[1] with template "slow": interval: expected at most the stage's duration of 5m0s, found 10m0s: the check would never run`,
		`metrics[2] with template "slow": interval: expected a duration above 0, found -1m0s`,
		`metrics[3]: there is no template "none" in metrics: name one of empty or slow`,
		`metrics[4]: interval: required`,
		`metrics[4]: provider: required`,
		`metrics[4]: query: required`,
		`metrics[4]: expected: required with strategy THRESHOLD; expected min, max or both`,
		`logs[0]: there is no template "none" in logs: write it into a file of kind AnalysisTemplate in .pipe/`,
		`https[0]: url: expected a URL such as https://example.com/healthz`,
		`https[0]: method: expected a method such as GET, found "get"`,
		`https[0]: expectedCode: expected a status code from 100 to 599, found 1`,
		"https[0]: expectedResponse: expected a text, or a regular expression between slashes: error parsing regexp: missing closing ): `(`",
	}
	if err == nil {
		t.Fatal("it is accepted")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
