package bigquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/rolloutrow"
	"github.com/c785c783/piped/piped/notify"
)

// DefaultEndpoint is the address of BigQuery's API.
const DefaultEndpoint = "https://bigquery.googleapis.com"

const (
	scope     = "https://www.googleapis.com/auth/bigquery.insertdata"
	timeout   = 20 * time.Second // of a request
	maxAnswer = 64 << 10         // maximal bytes read of a response
)

// Config holds the destination table and the credentials.
type Config struct {
	Project, Dataset, Table string
	Endpoint                string // default DefaultEndpoint

	// Credentials is the content of a Google credentials file. "" uses the default
	// credentials of the environment: a workload identity or the metadata server.
	Credentials string
	Now         func() time.Time
}

// Receiver inserts the records of ended rollouts and scalings. It implements
// notify.Receiver.
type Receiver struct {
	cfg  Config
	url  string
	base *http.Client

	mu     sync.Mutex
	client *http.Client // authorized; nil until the first delivery
}

var _ notify.Receiver = (*Receiver)(nil)

// New returns a receiver. Credentials are resolved at the first delivery.
func New(c Config) *Receiver {
	if c.Endpoint == "" {
		c.Endpoint = DefaultEndpoint
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Receiver{cfg: c, base: notify.NewClient(timeout), url: strings.TrimSuffix(c.Endpoint, "/") + "/bigquery/v2/projects/" + url.PathEscape(c.Project) +
		"/datasets/" + url.PathEscape(c.Dataset) + "/tables/" + url.PathEscape(c.Table) + "/insertAll"}
}

// Name returns the receiver's name, which contains the table.
func (r *Receiver) Name() string {
	return "bigquery/" + r.cfg.Project + "." + r.cfg.Dataset + "." + r.cfg.Table
}

// Wants implements notify.Receiver.
func (r *Receiver) Wants(_ context.Context, n notify.Notice) bool {
	return (n.Event.Type == deploy.EventRolloutEnded || n.Event.Type == deploy.EventScalingEnded) && n.Details.Rollout != nil
}

// Order implements notify.Receiver; rows have no order.
func (r *Receiver) Order(notify.Notice) string { return "" }

// request is the body of tabledata.insertAll; response, below, is its result.
type request struct {
	Kind string    `json:"kind"`
	Rows []element `json:"rows"`
}

type element struct {
	InsertID string         `json:"insertId"`
	JSON     rolloutrow.Row `json:"json"`
}

type problem struct {
	Reason   string `json:"reason"`
	Location string `json:"location"`
	Message  string `json:"message"`
}

type response struct {
	InsertErrors []struct {
		Errors []problem `json:"errors"`
	} `json:"insertErrors"`
	Error struct {
		Message string    `json:"message"`
		Errors  []problem `json:"errors"`
	} `json:"error"`
}

// Deliver inserts the row of a record. Rejections because of the table or of permissions are
// retried, because a user can fix both and no row is lost.
func (r *Receiver) Deliver(ctx context.Context, n notify.Notice) error {
	if n.Details.Rollout == nil {
		return deploy.Errorf(deploy.Invalid, "the event holds no record to insert into BigQuery")
	}
	body, err := json.Marshal(request{Kind: "bigquery#tableDataInsertAllRequest", Rows: []element{{insertID(n.Key), rowOf(*n.Details.Rollout)}}})
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "compose the row for BigQuery: %w", err)
	}
	client, err := r.authorized()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(string(body)))
	if err != nil {
		return deploy.Errorf(deploy.Denied, "the endpoint of BigQuery is not a valid URL: correct rolloutExport.bigquery.endpoint")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return requestError(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return notify.Unreachable(err)
	}
	return r.checkResponse(resp, text)
}

// authorized returns the HTTP client that sends the credentials.
func (r *Receiver) authorized() (*http.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	// Not the context of the delivery: tokens are refreshed as long as the receiver exists.
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, r.base)
	found, err := credentials(ctx, r.cfg.Credentials)
	if err != nil {
		return nil, err
	}
	r.client = &http.Client{Transport: &oauth2.Transport{Source: found.TokenSource, Base: r.base.Transport}, CheckRedirect: r.base.CheckRedirect, Timeout: timeout}
	return r.client, nil
}

// credentials returns those of a file's content, or those of the environment if text is
// empty. Errors do not contain the file's content.
func credentials(ctx context.Context, text string) (*google.Credentials, error) {
	if text == "" {
		found, err := google.FindDefaultCredentials(ctx, scope)
		if err != nil {
			return nil, deploy.Errorf(deploy.Denied, "the agent has no Google credentials: give it a workload identity, or set rolloutExport.bigquery.credentialsFile")
		}
		return found, nil
	}
	var file struct {
		Type google.CredentialsType `json:"type"`
	}
	known := []google.CredentialsType{google.ServiceAccount, google.ExternalAccount, google.AuthorizedUser, google.ImpersonatedServiceAccount}
	err := json.Unmarshal([]byte(text), &file)
	if err == nil && !slices.Contains(known, file.Type) {
		err = errors.New("unknown type")
	}
	var found *google.Credentials
	if err == nil {
		found, err = google.CredentialsFromJSONWithType(ctx, []byte(text), file.Type, scope)
	}
	if err != nil {
		return nil, deploy.Errorf(deploy.Denied, "rolloutExport.bigquery.credentialsFile holds no usable Google credentials: write the JSON key of a service account or a workload identity federation configuration into it")
	}
	return found, nil
}

// requestError returns the error of a request without a response: no connection, or no
// token for the credentials.
func requestError(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		status := 0
		if refused.Response != nil {
			status = refused.Response.StatusCode
		}
		kind := deploy.Denied
		if status == http.StatusTooManyRequests || status >= 500 {
			kind = deploy.Unavailable
		}
		return deploy.Errorf(kind, "Google issues no token for the credentials (%d %s): check that the account exists and is enabled", status, http.StatusText(status))
	}
	return notify.Unreachable(err)
}

// checkResponse returns the error of a response, nil when the row was inserted.
func (r *Receiver) checkResponse(resp *http.Response, text []byte) error {
	var answer response
	parsed := json.Unmarshal(text, &answer)
	code := resp.StatusCode
	switch {
	case code >= 200 && code <= 299 && parsed != nil:
		return deploy.Errorf(deploy.Unavailable, "the answer is not from BigQuery: check rolloutExport.bigquery.endpoint")
	case code >= 200 && code <= 299:
		return insertError(answer)
	case code == http.StatusRequestEntityTooLarge:
		return deploy.Errorf(deploy.Invalid, "the row is too large for BigQuery")
	case code == http.StatusTooManyRequests || code >= 500 || limited(answer.Error.Errors):
		return notify.RetryAt(deploy.Errorf(deploy.Unavailable, "BigQuery answers %d: %s", code, messageOf(answer.Error.Message, resp)), retryAfter(resp, r.cfg.Now()))
	case code == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "there is no table %s: create it with the columns of docs/concepts/rollouts.md, or correct rolloutExport.bigquery", r.Name())
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "BigQuery answers %d: %s: grant the account the role BigQuery Data Editor on the table", code, messageOf(answer.Error.Message, resp))
	}
	return deploy.Errorf(deploy.Denied, "BigQuery answers %d: %s", code, messageOf(answer.Error.Message, resp))
}

// insertError returns the error of the rows that were not inserted, nil if all were.
func insertError(answer response) error {
	for _, e := range answer.InsertErrors {
		for _, p := range e.Errors {
			if p.Reason == "invalid" {
				return deploy.Errorf(deploy.Denied, "the table rejects the row: %s: give it the columns of docs/concepts/rollouts.md", strings.TrimPrefix(p.Location+": "+p.Message, ": "))
			}
		}
	}
	if len(answer.InsertErrors) == 0 {
		return nil
	}
	why := "no reason given"
	if errs := answer.InsertErrors[0].Errors; len(errs) > 0 {
		why = fmt.Sprintf("%s %s", errs[0].Reason, errs[0].Message)
	}
	return deploy.Errorf(deploy.Unavailable, "BigQuery did not insert the row: %s", strings.TrimSpace(why))
}

// limited reports whether a rate limit or quota was exceeded.
func limited(problems []problem) bool {
	return slices.ContainsFunc(problems, func(p problem) bool {
		return p.Reason == "rateLimitExceeded" || p.Reason == "quotaExceeded"
	})
}

func messageOf(message string, resp *http.Response) string {
	if message == "" {
		return http.StatusText(resp.StatusCode)
	}
	const most = 300
	return message[:min(most, len(message))]
}

// retryAfter returns the time of the Retry-After header, or the zero time.
func retryAfter(resp *http.Response, now time.Time) time.Time {
	seconds, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
	if err != nil || seconds < 0 {
		return time.Time{}
	}
	return now.Add(seconds)
}
