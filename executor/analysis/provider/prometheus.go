package provider

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// prometheus queries a Prometheus server or a compatible API.
type prometheus struct {
	config.Prometheus
	transport http.RoundTripper
}

// Query implements Metrics with a range query.
func (p *prometheus) Query(ctx context.Context, query string, over Window) (Numbers, error) {
	client, err := api.NewClient(api.Config{Address: p.Address, Client: &http.Client{Transport: authorised{p}, CheckRedirect: noRedirect}})
	if err != nil {
		return Numbers{}, deploy.Errorf(deploy.Invalid, "the address of Prometheus: %w", err)
	}
	value, warnings, _, err := v1.NewAPI(client).QueryRange(ctx, query, v1.Range{Start: over.From, End: over.To, Step: over.Step})
	if err != nil {
		return Numbers{}, p.explain(ctx, err)
	}
	points, err := pointsOf(value)
	return Numbers{Points: numbers(points), Warnings: warnings}, err
}

// explain classifies an error of the client.
func (p *prometheus) explain(ctx context.Context, err error) error {
	var answered *v1.Error
	var own *deploy.Error
	switch {
	case ctx.Err() != nil:
		return unreachable(ctx, err)
	case errors.As(err, &own):
		return own
	case !errors.As(err, &answered):
		return unreachable(ctx, err)
	case answered.Type == v1.ErrBadData || answered.Type == v1.ErrExec:
		return deploy.Errorf(deploy.Invalid, "Prometheus cannot answer the query: %s", oneLine(answered.Msg))
	case answered.Type == v1.ErrClient:
		return deploy.Errorf(deploy.Invalid, "Prometheus refuses the query: %s: check the provider's address and credentials", oneLine(answered.Msg+" "+answered.Detail))
	}
	return deploy.Errorf(deploy.Unavailable, "Prometheus cannot answer now: %s", oneLine(answered.Msg+" "+answered.Detail))
}

// pointsOf returns the points of all series in a response.
func pointsOf(value model.Value) (points []float64, err error) {
	switch v := value.(type) {
	case nil:
	case *model.Scalar:
		points = append(points, float64(v.Value))
	case model.Vector:
		for _, sample := range v {
			if sample.Histogram != nil {
				return nil, errHistogram
			}
			points = append(points, float64(sample.Value))
		}
	case model.Matrix:
		for _, series := range v {
			if len(series.Histograms) > 0 {
				return nil, errHistogram
			}
			for _, sample := range series.Values {
				points = append(points, float64(sample.Value))
			}
		}
	default:
		return nil, deploy.Errorf(deploy.Invalid, "the query is answered with a %s; expected numbers", value.Type())
	}
	return points, nil
}

// errHistogram is the error for a query whose result cannot be compared with numbers.
var errHistogram = deploy.Errorf(deploy.Invalid, "the query is answered with native histograms; expected numbers, such as histogram_quantile makes of them")

// authorised adds the credentials, which it reads from their files for each request.
type authorised struct{ p *prometheus }

// RoundTrip implements http.RoundTripper.
func (a authorised) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if err := authorise(req, a.p.UsernameFile, a.p.PasswordFile); err != nil {
		return nil, err
	}
	return a.p.transport.RoundTrip(req)
}
