package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/web"
)

// storeFigures are those of writing. They implement store.Observer.
type storeFigures struct {
	*rolloutFigures
	write, group prometheus.Histogram
}

func newStoreFigures(auto promauto.Factory, rollouts *rolloutFigures) *storeFigures {
	const part = "store"
	return &storeFigures{
		rolloutFigures: rollouts,
		write:          histogram(auto, part, "write_duration_seconds", "Time that a write to the store took, including the wait for other writes.", answerBuckets),
		group: histogram(auto, part, "transaction_writes", "Writes that shared one committed transaction.",
			[]float64{1, 2, 4, 8, 16, 32, 64}),
	}
}

// Wrote implements store.Observer.
func (f *storeFigures) Wrote(took time.Duration) { f.write.Observe(took.Seconds()) }

// Committed implements store.Observer.
func (f *storeFigures) Committed(writes int) { f.group.Observe(float64(writes)) }

// gitFigures are those of Git remotes. They implement git.Observer.
type gitFigures struct {
	operations *prometheus.CounterVec
	duration   *prometheus.HistogramVec
}

func newGitFigures(auto promauto.Factory) *gitFigures {
	const part = "git"
	f := &gitFigures{
		operations: counters(auto, part, "operations_total", "Operations on Git remotes, by operation (`ls_remote`, `fetch`, `push`) and result (`ok`, `error`).", "operation", "result"),
		duration:   histograms(auto, part, "operation_duration_seconds", "Time that an operation on a Git remote took, by operation.", answerBuckets, "operation"),
	}
	for _, op := range git.Operations() {
		f.operations.WithLabelValues(string(op), resultOK)
		f.operations.WithLabelValues(string(op), resultError)
		f.duration.WithLabelValues(string(op))
	}
	return f
}

// Asked implements git.Observer.
func (f *gitFigures) Asked(op git.Operation, took time.Duration, err error) {
	f.operations.WithLabelValues(string(op), resultOf(err)).Inc()
	f.duration.WithLabelValues(string(op)).Observe(took.Seconds())
}

// callFigures are those of the control API. They implement control.Metrics.
type callFigures struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCallFigures(auto promauto.Factory) *callFigures {
	const part = "grpc"
	return &callFigures{
		requests: counters(auto, part, "requests_total", "Calls of the control API that have ended, by method and gRPC code.", "method", "code"),
		duration: histograms(auto, part, "request_duration_seconds", "Time that a call of the control API took, by method. Streams are left out.", answerBuckets, "method"),
	}
}

// Called implements control.Metrics.
func (f *callFigures) Called(method, code string, stream bool, took time.Duration) {
	f.requests.WithLabelValues(method, code).Inc()
	if !stream {
		f.duration.WithLabelValues(method).Observe(max(0, took).Seconds())
	}
}

// webhookFigures are those of webhooks. They implement web.DeliveryMetrics.
type webhookFigures struct{ deliveries *prometheus.CounterVec }

func newWebhookFigures(auto promauto.Factory) *webhookFigures {
	return &webhookFigures{counters(auto, "webhook", "deliveries_total",
		"Deliveries of Git hosts to webhooks, by result: `accepted`, `unproven` (the secret is wrong), `refused` or `busy`.", "webhook", "result")}
}

// Delivered implements web.DeliveryMetrics.
func (f *webhookFigures) Delivered(webhook string, result web.Delivery) {
	f.deliveries.WithLabelValues(webhook, string(result)).Inc()
}

// retentionFigures are those of what is removed because it is old. They implement
// retention.Metrics.
type retentionFigures struct{ deployments prometheus.Counter }

func newRetentionFigures(auto promauto.Factory) *retentionFigures {
	return &retentionFigures{counters(auto, "retention", "removed_deployments_total",
		"Deployments that retention has removed.").WithLabelValues()}
}

// Removed implements retention.Metrics.
func (f *retentionFigures) Removed(deployments int) { f.deployments.Add(float64(deployments)) }
