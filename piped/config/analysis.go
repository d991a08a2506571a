package config

import (
	"net/http"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// AnalysisOptions are those of ANALYSIS: its checks run side by side until
// Duration has passed.
type AnalysisOptions struct {
	Duration         strict.Duration  `yaml:"duration" json:"duration"`
	RestartThreshold int              `yaml:"restartThreshold" json:"-"` // PipeCD's, not used
	Metrics          []AnalysisMetric `yaml:"metrics" json:"metrics,omitempty"`
	Logs             []AnalysisLog    `yaml:"logs" json:"logs,omitempty"`
	HTTPS            []AnalysisHTTP   `yaml:"https" json:"https,omitempty"`
	SkipOn           SkipOptions      `yaml:"skipOn" json:"-"`
}

// AnalysisTemplate names a template that says what an entry leaves out.
type AnalysisTemplate struct {
	Name    string            `yaml:"name" json:"name,omitempty"`
	AppArgs map[string]string `yaml:"appArgs" json:"appArgs,omitempty"`
}

// AnalysisCheck is what every kind of check has.
type AnalysisCheck struct {
	Interval strict.Duration `yaml:"interval" json:"interval"` // 0 only with a template
	// FailureLimit is how many failures are tolerated.
	FailureLimit int              `yaml:"failureLimit" json:"failureLimit"`
	SkipOnNoData bool             `yaml:"skipOnNoData" json:"skipOnNoData"`
	Timeout      strict.Duration  `yaml:"timeout" json:"timeout"` // of one query
	Template     AnalysisTemplate `yaml:"template" json:"template,omitzero"`
}

// AnalysisMetric checks numbers that a provider answers to a query.
type AnalysisMetric struct {
	AnalysisCheck `yaml:",inline"`
	Provider      string            `yaml:"provider" json:"provider,omitempty"`
	Query         string            `yaml:"query" json:"query,omitempty"`
	Strategy      AnalysisStrategy  `yaml:"strategy" json:"strategy"`
	Expected      AnalysisExpected  `yaml:"expected" json:"expected,omitzero"`
	Deviation     AnalysisDeviation `yaml:"deviation" json:"deviation"`
	CanaryArgs    map[string]string `yaml:"canaryArgs" json:"canaryArgs,omitempty"`
	BaselineArgs  map[string]string `yaml:"baselineArgs" json:"baselineArgs,omitempty"`
	PrimaryArgs   map[string]string `yaml:"primaryArgs" json:"primaryArgs,omitempty"`
}

// AnalysisLog checks that a log query finds nothing.
type AnalysisLog struct {
	AnalysisCheck `yaml:",inline"`
	Provider      string `yaml:"provider" json:"provider,omitempty"`
	Query         string `yaml:"query" json:"query,omitempty"`
}

// AnalysisHTTP checks the answer to an HTTP request.
type AnalysisHTTP struct {
	AnalysisCheck    `yaml:",inline"`
	URL              string           `yaml:"url" json:"url,omitempty"`
	Method           string           `yaml:"method" json:"method"`
	Headers          []AnalysisHeader `yaml:"headers" json:"headers,omitempty"`
	ExpectedCode     int              `yaml:"expectedCode" json:"expectedCode"`
	ExpectedResponse string           `yaml:"expectedResponse" json:"expectedResponse,omitempty"`
}

// AnalysisHeader is one header of a request.
type AnalysisHeader struct {
	Key   string `yaml:"key" json:"key"`
	Value string `yaml:"value" json:"value"`
}

// AnalysisExpected bounds what strategy THRESHOLD accepts; both ends belong to it.
type AnalysisExpected struct {
	Min *float64 `yaml:"min" json:"min,omitempty"`
	Max *float64 `yaml:"max" json:"max,omitempty"`
}

// AnalysisStrategy says what a metric is compared with.
type AnalysisStrategy string

// The strategies.
const (
	StrategyThreshold      AnalysisStrategy = "THRESHOLD"
	StrategyPrevious       AnalysisStrategy = "PREVIOUS"
	StrategyCanaryBaseline AnalysisStrategy = "CANARY_BASELINE"
	StrategyCanaryPrimary  AnalysisStrategy = "CANARY_PRIMARY"
)

// Values lists the strategies.
func (AnalysisStrategy) Values() []string {
	return []string{string(StrategyThreshold), string(StrategyPrevious), string(StrategyCanaryBaseline), string(StrategyCanaryPrimary)}
}

// AnalysisDeviation says in which direction a difference fails a comparison.
type AnalysisDeviation string

// The directions.
const (
	DeviationEither AnalysisDeviation = "EITHER"
	DeviationHigh   AnalysisDeviation = "HIGH"
	DeviationLow    AnalysisDeviation = "LOW"
)

// Values lists the directions.
func (AnalysisDeviation) Values() []string {
	return []string{string(DeviationEither), string(DeviationHigh), string(DeviationLow)}
}

const defaultQueryTimeout = strict.Duration(30 * time.Second)

// Default implements strict.Defaulter.
func (m *AnalysisMetric) Default() {
	m.Timeout, m.Strategy, m.Deviation = defaultQueryTimeout, StrategyThreshold, DeviationEither
}

// Default implements strict.Defaulter.
func (l *AnalysisLog) Default() { l.Timeout = defaultQueryTimeout }

// Default implements strict.Defaulter.
func (h *AnalysisHTTP) Default() {
	h.Timeout, h.Method, h.ExpectedCode = defaultQueryTimeout, http.MethodGet, http.StatusOK
}
