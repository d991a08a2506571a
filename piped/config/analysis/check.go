package analysis

import (
	"net/http"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// Check is what every kind of check has. One that names a template holds zero
// values where the template decides.
type Check struct {
	// Name is what the check is called in logs; "" is the template's name, or the
	// check's place such as metrics[0].
	Name     string          `yaml:"name" json:"name,omitempty"`
	Interval strict.Duration `yaml:"interval" json:"interval"` // 0 only with a template
	// FailureLimit is how many failures are tolerated.
	FailureLimit int             `yaml:"failureLimit" json:"failureLimit"`
	SkipOnNoData bool            `yaml:"skipOnNoData" json:"skipOnNoData"`
	Timeout      strict.Duration `yaml:"timeout" json:"timeout"` // of one query
	Template     TemplateRef     `yaml:"template" json:"template,omitzero"`
}

// TemplateRef names a template that says what an entry leaves out.
type TemplateRef struct {
	Name    string            `yaml:"name" json:"name,omitempty"`
	AppArgs map[string]string `yaml:"appArgs" json:"appArgs,omitempty"`
}

// Metric checks numbers that a provider answers to a query.
type Metric struct {
	Check        `yaml:",inline"`
	Provider     string            `yaml:"provider" json:"provider,omitempty"`
	Query        string            `yaml:"query" json:"query,omitempty"`
	Strategy     Strategy          `yaml:"strategy" json:"strategy"`
	Expected     Expected          `yaml:"expected" json:"expected,omitzero"`
	Deviation    Deviation         `yaml:"deviation" json:"deviation"`
	CanaryArgs   map[string]string `yaml:"canaryArgs" json:"canaryArgs,omitempty"`
	BaselineArgs map[string]string `yaml:"baselineArgs" json:"baselineArgs,omitempty"`
	PrimaryArgs  map[string]string `yaml:"primaryArgs" json:"primaryArgs,omitempty"`
}

// Log checks that a log query finds nothing.
type Log struct {
	Check    `yaml:",inline"`
	Provider string `yaml:"provider" json:"provider,omitempty"`
	Query    string `yaml:"query" json:"query,omitempty"`
}

// HTTP checks the answer to an HTTP request.
type HTTP struct {
	Check        `yaml:",inline"`
	URL          string   `yaml:"url" json:"url,omitempty"`
	Method       string   `yaml:"method" json:"method"`
	Headers      []Header `yaml:"headers" json:"headers,omitempty"`
	ExpectedCode int      `yaml:"expectedCode" json:"expectedCode"`
	// ExpectedResponse is what the body must be, but for white space around it, or
	// a regular expression between two slashes that must be found in it. "" is any.
	ExpectedResponse string `yaml:"expectedResponse" json:"expectedResponse,omitempty"`
}

// Header is one header of a request.
type Header struct {
	Key   string `yaml:"key" json:"key"`
	Value string `yaml:"value" json:"value"`
}

// Expected bounds what strategy THRESHOLD accepts; both ends belong to it.
type Expected struct {
	Min *float64 `yaml:"min" json:"min,omitempty"`
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
