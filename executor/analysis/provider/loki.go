package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// maxLines bounds the number of requested lines.
const maxLines = 100

// loki queries Grafana Loki or a compatible API.
type loki struct {
	config.Loki
	http *http.Client
}

// lokiAnswer is the response of /loki/api/v1/query_range.
type lokiAnswer struct {
	Data struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
	Warnings []string `json:"warnings"`
}

// Find implements Logs.
func (l *loki) Find(ctx context.Context, query string, over Window) (Lines, error) {
	values := url.Values{
		"start": {strconv.FormatInt(over.From.UnixNano(), 10)}, "end": {strconv.FormatInt(over.To.UnixNano(), 10)},
		"query": {query}, "limit": {strconv.Itoa(maxLines)}, "direction": {"backward"},
	}
	req, err := http.NewRequest(http.MethodGet, strings.TrimRight(l.Address, "/")+"/loki/api/v1/query_range?"+values.Encode(), nil)
	if err != nil {
		return Lines{}, deploy.Errorf(deploy.Invalid, "the address of Loki: %w", err)
	}
	if err := authorise(req, l.UsernameFile, l.PasswordFile); err != nil {
		return Lines{}, err
	}
	if l.Tenant != "" {
		req.Header.Set("X-Scope-OrgID", l.Tenant)
	}
	var answer lokiAnswer
	if err := get(ctx, l.http, req, &answer, plain); err != nil {
		return Lines{}, err
	}
	lines, err := answer.lines()
	return Lines{Lines: lines, More: len(lines) >= maxLines, Warnings: answer.Warnings}, err
}

// lines returns the lines of all streams, the latest first.
func (a *lokiAnswer) lines() ([]string, error) {
	if a.Data.Type != "streams" {
		return nil, deploy.Errorf(deploy.Invalid, "the query is answered with a %q, not with lines of logs; expected a query that selects lines, such as {app=\"web\"} |= \"panic\"", a.Data.Type)
	}
	var streams []struct {
		Values [][]json.RawMessage `json:"values"` // time in nanoseconds as text, line, and more
	}
	if err := json.Unmarshal(a.Data.Result, &streams); err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "the answer cannot be read: %w", err)
	}
	type entry struct {
		at   int64
		line string
	}
	var entries []entry
	for _, stream := range streams {
		for _, value := range stream.Values {
			var at, line string
			if len(value) < 2 || json.Unmarshal(value[0], &at) != nil || json.Unmarshal(value[1], &line) != nil {
				return nil, deploy.Errorf(deploy.Unavailable, "the answer cannot be read: expected pairs of a time and a line")
			}
			ns, _ := strconv.ParseInt(at, 10, 64) // used for sorting only
			entries = append(entries, entry{ns, line})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return int(min(max(b.at-a.at, -1), 1)) })
	lines := make([]string, len(entries))
	for i, e := range entries {
		lines[i] = e.line
	}
	return lines, nil
}
