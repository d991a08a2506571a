package deploy

import "time"

// AnalysisVerdict is the result of one evaluation of an analysis check.
type AnalysisVerdict string

// The verdicts. NO_DATA is neither success nor failure.
const (
	AnalysisOK     AnalysisVerdict = "OK"
	AnalysisFailed AnalysisVerdict = "FAILED"
	AnalysisNoData AnalysisVerdict = "NO_DATA"
	AnalysisError  AnalysisVerdict = "ERROR" // the provider did not answer, or rejected the query
)

// AnalysisKind is what an analysis check evaluates.
type AnalysisKind string

// The kinds of checks.
const (
	AnalysisMetrics AnalysisKind = "METRICS"
	AnalysisLogs    AnalysisKind = "LOGS"
	AnalysisHTTP    AnalysisKind = "HTTP"
)

// AnalysisCheck describes one check of an analysis, as it is evaluated. It holds no secret:
// neither headers nor expected bodies of HTTP checks.
type AnalysisCheck struct {
	DeploymentID string       `json:"-"`
	StageID      string       `json:"-"`
	ID           string       `json:"-"` // within the stage, such as metrics[0]
	Name         string       `json:"name"`
	Kind         AnalysisKind `json:"kind"`
	Provider     string       `json:"provider,omitempty"` // "" for HTTP
	Query        string       `json:"query"`              // rendered; for HTTP the method and the URL without password
	Expected     string       `json:"expected"`           // what is expected, for users

	// Of metrics. Min and Max bound the accepted values of the strategy THRESHOLD; the others
	// compare Variant with ComparedVariant.
	Strategy        string   `json:"strategy,omitempty"`
	Deviation       string   `json:"deviation,omitempty"`
	Min             *float64 `json:"min,omitempty"`
	Max             *float64 `json:"max,omitempty"`
	ComparedQuery   string   `json:"comparedQuery,omitempty"`
	Variant         string   `json:"variant,omitempty"`
	ComparedVariant string   `json:"comparedVariant,omitempty"`

	Interval     time.Duration `json:"interval"`
	FailureLimit int           `json:"failureLimit"` // tolerated failures
	SkipOnNoData bool          `json:"skipOnNoData,omitempty"`
}

// AnalysisSample is one evaluation of one check. The samples of a stage are its stored
// progress: after a restart the stage resumes from them.
type AnalysisSample struct {
	ApplicationID string
	DeploymentID  string
	StageID       string
	// Check identifies the check within its stage across restarts, such as metrics[0].
	// Name is the display name.
	Check string
	Name  string
	// Position is the number of intervals before the evaluation.
	Position int64
	At       time.Time
	Verdict  AnalysisVerdict
	Counted  bool      // the evaluation counts as a failure
	Values   []float64 // the measured values; finite
	Compared []float64 // the values that they were compared with; finite
	Text     string    // measured and expected values, for users
}

// AnalysisPassed records when the last successful analysis of an application began.
type AnalysisPassed struct {
	ApplicationID string
	Analysis      string // identifies the analysis, such as the stage ID
	DeploymentID  string
	StartedAt     time.Time
}
