package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// datadog queries Datadog's HTTP API, version 1.
type datadog struct {
	config.Datadog
	http *http.Client
}

// datadogAnswer is the response of /api/v1/query. Missing values are null.
type datadogAnswer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Series []struct {
		Points [][2]*float64 `json:"pointlist"` // time in milliseconds, value
	} `json:"series"`
	Message string `json:"message"`
}

// Query implements Metrics. Datadog chooses the step itself.
func (d *datadog) Query(ctx context.Context, query string, over Window) (Numbers, error) {
	values := url.Values{
		"from": {strconv.FormatInt(over.From.Unix(), 10)}, "to": {strconv.FormatInt(over.To.Unix(), 10)}, "query": {query},
	}
	req, err := http.NewRequest(http.MethodGet, d.base()+"/api/v1/query?"+values.Encode(), nil)
	if err != nil {
		return Numbers{}, deploy.Errorf(deploy.Invalid, "the address of Datadog: %w", err)
	}
	keys := map[string]string{}
	for header, from := range map[string]struct {
		file string
		data strict.Secret
	}{"DD-API-KEY": {d.APIKeyFile, d.APIKeyData}, "DD-APPLICATION-KEY": {d.ApplicationKeyFile, d.ApplicationKeyData}} {
		keys[header] = strings.TrimSpace(from.data.Reveal())
		if from.file != "" {
			if keys[header], err = fromFile(from.file); err != nil {
				return Numbers{}, err
			}
		}
		req.Header.Set(header, keys[header])
	}
	var answer datadogAnswer
	explain := func(body []byte) string { return withoutKeys(datadogErrors(body), keys) }
	if err := get(ctx, d.http, req, &answer, explain); err != nil {
		return Numbers{}, err
	}
	if answer.Status != "ok" {
		return Numbers{}, deploy.Errorf(deploy.Invalid, "Datadog cannot answer the query: %s", oneLine(withoutKeys(answer.Error, keys)))
	}
	return Numbers{Points: answer.points(), Warnings: answer.warnings()}, nil
}

// points returns the values of all series, without missing ones.
func (a *datadogAnswer) points() (points []float64) {
	for _, series := range a.Series {
		for _, point := range series.Points {
			if point[1] != nil {
				points = append(points, *point[1])
			}
		}
	}
	return numbers(points)
}

func (a *datadogAnswer) warnings() []string {
	if a.Message == "" {
		return nil
	}
	return []string{oneLine(a.Message)}
}

// base returns the URL of the API: address is a site such as datadoghq.eu, or the URL
// of a proxy.
func (d *datadog) base() string {
	if strings.Contains(d.Address, "://") {
		return strings.TrimRight(d.Address, "/")
	}
	return "https://api." + d.Address
}

// datadogErrors returns the error messages of a response.
func datadogErrors(body []byte) string {
	var answer struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Errors) == 0 {
		return plain(body)
	}
	return strings.Join(answer.Errors, "; ")
}

// withoutKeys redacts the keys in a text.
func withoutKeys(text string, keys map[string]string) string {
	for _, key := range keys {
		if key != "" {
			text = strings.ReplaceAll(text, key, "***")
		}
	}
	return text
}
