package analysis

import (
	"net/http"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// Check is what every kind of check has. One that names a template holds zero
// values where the template decides.
type Check struct {
	// Name is the name of the check in the log.
	// Default: the template's name, or its place such as `metrics[0]`. Not in PipeCD.
	Name string `yaml:"name" json:"name,omitempty"`
	// Interval is the time between two evaluations of the check. A query is about the last
	// interval.
	// Required, here or in the template.
	//
	// It is 0 only with a template.
	Interval strict.Duration `yaml:"interval" json:"interval"`
	// FailureLimit is how many failures are tolerated over the whole duration.
	// Default: `0`.
	FailureLimit int `yaml:"failureLimit" json:"failureLimit"`
	// SkipOnNoData makes finding no data no failure. A provider that does not answer is always a
	// failure.
	SkipOnNoData bool `yaml:"skipOnNoData" json:"skipOnNoData"`
	// Timeout is the limit of one query.
	Timeout strict.Duration `yaml:"timeout" json:"timeout"`
	// Template names a template below `.pipe/` for what the entry leaves out.
	Template TemplateRef `yaml:"template" json:"template,omitzero"`
}

// TemplateRef names a template that says what an entry leaves out.
type TemplateRef struct {
	// Name is the name of the template.
	// Default: none.
	Name string `yaml:"name" json:"name,omitempty"`
	// AppArgs are `.AppCustomArgs` of queries.
	// Default: none.
	AppArgs map[string]string `yaml:"appArgs" json:"appArgs,omitempty"`
}

// Metric checks numbers that a provider answers to a query.
type Metric struct {
	Check `yaml:",inline"`
	// Provider is one of `analysisProviders`.
	// Required, here or in the template.
	Provider string `yaml:"provider" json:"provider,omitempty"`
	// Query is what the provider is asked. It is a template: see below.
	// Required, here or in the template.
	Query string `yaml:"query" json:"query,omitempty"`
	// Strategy is what the numbers are compared with. `THRESHOLD` compares every point with
	// `expected`; `PREVIOUS` with the same time of the last successful analysis; `CANARY_BASELINE`
	// and `CANARY_PRIMARY` compare the query for two variants.
	Strategy Strategy `yaml:"strategy" json:"strategy"`
	// Expected is the accepted range of `THRESHOLD`.
	Expected Expected `yaml:"expected" json:"expected,omitzero"`
	// Deviation is the direction in which a comparison fails. It uses the Mann-Whitney U test with
	// a significance level of 5 %. Fewer points than the test needs (4 on each side) count as no
	// data.
	Deviation Deviation `yaml:"deviation" json:"deviation"`
	// CanaryArgs are `.VariantCustomArgs` of the query for the canary.
	// Default: none.
	CanaryArgs map[string]string `yaml:"canaryArgs" json:"canaryArgs,omitempty"`
	// BaselineArgs are `.VariantCustomArgs` of the query for the baseline.
	// Default: none.
	BaselineArgs map[string]string `yaml:"baselineArgs" json:"baselineArgs,omitempty"`
	// PrimaryArgs are `.VariantCustomArgs` of the query for the primary.
	// Default: none.
	PrimaryArgs map[string]string `yaml:"primaryArgs" json:"primaryArgs,omitempty"`
}

// Log checks that a log query finds nothing.
type Log struct {
	Check `yaml:",inline"`
	// Provider is one of `analysisProviders`, of type `LOKI`.
	// Required, here or in the template.
	Provider string `yaml:"provider" json:"provider,omitempty"`
	// Query is a log query. Finding a line is a failure.
	// Required, here or in the template.
	Query string `yaml:"query" json:"query,omitempty"`
}

// HTTP checks the answer to an HTTP request.
type HTTP struct {
	Check `yaml:",inline"`
	// URL is the address of the request. Redirects are not followed.
	// Required, here or in the template. Type: URL.
	URL string `yaml:"url" json:"url,omitempty"`
	// Method is the method of the request.
	Method string `yaml:"method" json:"method"`
	// Headers are headers of the request.
	// Default: none.
	Headers []Header `yaml:"headers" json:"headers,omitempty"`
	// ExpectedCode is the status code that the answer must have.
	ExpectedCode int `yaml:"expectedCode" json:"expectedCode"`
	// ExpectedResponse is the body that the answer must have, apart from white space around it.
	// Between two slashes it is a regular expression that must match somewhere in the body.
	// Default: any.
	ExpectedResponse string `yaml:"expectedResponse" json:"expectedResponse,omitempty"`
}

// Header is one header of a request.
type Header struct {
	// Key is the name of the header.
	// Required.
	Key string `yaml:"key" json:"key"`
	// Value is its value.
	// Default: none.
	Value string `yaml:"value" json:"value"`
}

// Expected bounds what strategy THRESHOLD accepts; both ends belong to it.
type Expected struct {
	// Min is the least accepted value.
	// Required with `THRESHOLD`, or `max`.
	Min *float64 `yaml:"min" json:"min,omitempty"`
	// Max is the greatest accepted value.
	// Required with `THRESHOLD`, or `min`.
	Max *float64 `yaml:"max" json:"max,omitempty"`
}

// IsZero reports whether there is no bound.
func (e Expected) IsZero() bool { return e.Min == nil && e.Max == nil }

// Strategy says what a metric is compared with.
type Strategy string

// The strategies.
const (
	Threshold      Strategy = "THRESHOLD"
	Previous       Strategy = "PREVIOUS"
	CanaryBaseline Strategy = "CANARY_BASELINE"
	CanaryPrimary  Strategy = "CANARY_PRIMARY"
)

// Values lists the strategies.
func (Strategy) Values() []string {
	return []string{string(Threshold), string(Previous), string(CanaryBaseline), string(CanaryPrimary)}
}

// Deviation says in which direction a difference fails a comparison.
type Deviation string

// The directions.
const (
	Either Deviation = "EITHER"
	High   Deviation = "HIGH"
	Low    Deviation = "LOW"
)

// Values lists the directions.
func (Deviation) Values() []string { return []string{string(Either), string(High), string(Low)} }

const defaultTimeout = strict.Duration(30 * time.Second)

// Default implements strict.Defaulter.
func (m *Metric) Default() { m.Timeout, m.Strategy, m.Deviation = defaultTimeout, Threshold, Either }

// Default implements strict.Defaulter.
func (l *Log) Default() { l.Timeout = defaultTimeout }

// Default implements strict.Defaulter.
func (h *HTTP) Default() {
	h.Timeout, h.Method, h.ExpectedCode = defaultTimeout, http.MethodGet, http.StatusOK
}
