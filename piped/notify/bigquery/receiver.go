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

// DefaultEndpoint is BigQuery's.
const DefaultEndpoint = "https://bigquery.googleapis.com"

const (
	scope      = "https://www.googleapis.com/auth/bigquery.insertdata"
	timeout    = 20 * time.Second // of a request
	mostAnswer = 64 << 10         // bytes that are read of an answer
)

// Config says which table, and who writes into it.
type Config struct {
	Project, Dataset, Table string
	Endpoint                string // "" is DefaultEndpoint

	// Credentials is the content of a file of Google credentials; "" are those of the
	// environment: a workload identity, or the machine's metadata server.
	Credentials string
	Now         func() time.Time
}

// Receiver is a notify.Receiver: it is told of all rollouts and scalings that have
// ended.
type Receiver struct {
	cfg  Config
	url  string
	base *http.Client

	mu     sync.Mutex
	client *http.Client // with the credentials; nil before they were found
}

var _ notify.Receiver = (*Receiver)(nil)

// New returns a receiver. Credentials are looked for at the first row.
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

// Name names the table.
func (r *Receiver) Name() string {
	return "bigquery/" + r.cfg.Project + "." + r.cfg.Dataset + "." + r.cfg.Table
}

// Wants implements notify.Receiver.
func (r *Receiver) Wants(_ context.Context, n notify.Notice) bool {
	return (n.Event.Type == deploy.EventRolloutEnded || n.Event.Type == deploy.EventScalingEnded) && n.Details.Rollout != nil
}

// Order implements notify.Receiver: rows have no order.
func (r *Receiver) Order(notify.Notice) string { return "" }

// request and response are those of tabledata.insertAll.
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

// Deliver inserts the row of a record. What BigQuery refuses because of the table or of
// who writes is tried again: somebody can mend both, and nothing is lost.
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
		return deploy.Errorf(deploy.Denied, "the endpoint of BigQuery cannot be used: correct rolloutExport.bigquery.endpoint")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return unanswered(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return notify.Unreachable(err)
	}
	return r.judge(resp, text)
}

// authorized returns the client that shows the credentials.
func (r *Receiver) authorized() (*http.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	// Tokens are asked for as long as the receiver is there, not only by this row.
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, r.base)
	found, err := credentials(ctx, r.cfg.Credentials)
	if err != nil {
		return nil, err
	}
	r.client = &http.Client{Transport: &oauth2.Transport{Source: found.TokenSource, Base: r.base.Transport}, CheckRedirect: r.base.CheckRedirect, Timeout: timeout}
	return r.client, nil
}

// credentials reads those of a file, or finds those of the environment. Errors do not
// show what the file holds.
func credentials(ctx context.Context, text string) (*google.Credentials, error) {
	if text == "" {
		found, err := google.FindDefaultCredentials(ctx, scope)
		if err != nil {
			return nil, deploy.Errorf(deploy.Denied, "there are no Google credentials where the agent runs: give it a workload identity, or rolloutExport.bigquery.credentialsFile")
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
		return nil, deploy.Errorf(deploy.Denied, "rolloutExport.bigquery.credentialsFile holds no Google credentials that can be used: write the JSON key of a service account, or a configuration of workload identity federation into it")
	}
	return found, nil
}

// unanswered is the error of a request that was not answered, or for which there was no
// token: who asks for one is told why.
func unanswered(err error) error {
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
		return deploy.Errorf(kind, "Google gives no token for the credentials (%d %s): see whether the account is there, and enabled", status, http.StatusText(status))
	}
	return notify.Unreachable(err)
}

// judge reads an answer.
func (r *Receiver) judge(resp *http.Response, text []byte) error {
	var answer response
	parsed := json.Unmarshal(text, &answer)
	code := resp.StatusCode
	switch {
	case code >= 200 && code <= 299 && parsed != nil:
		return deploy.Errorf(deploy.Unavailable, "what answers is not BigQuery: check rolloutExport.bigquery.endpoint")
	case code >= 200 && code <= 299:
		return refusedRow(answer)
	case code == http.StatusRequestEntityTooLarge:
		return deploy.Errorf(deploy.Invalid, "BigQuery takes no row that large")
	case code == http.StatusTooManyRequests || code >= 500 || limited(answer.Error.Errors):
		return notify.RetryAt(deploy.Errorf(deploy.Unavailable, "BigQuery answers %d: %s", code, said(answer.Error.Message, resp)), retryAfter(resp, r.cfg.Now()))
	case code == http.StatusNotFound:
		return deploy.Errorf(deploy.Denied, "there is no table %s: make it with the columns that docs/concepts/rollouts.md lists, or correct rolloutExport.bigquery", r.Name())
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return deploy.Errorf(deploy.Denied, "BigQuery answers %d: %s: give the account the role BigQuery Data Editor on the table", code, said(answer.Error.Message, resp))
	}
	return deploy.Errorf(deploy.Denied, "BigQuery answers %d: %s", code, said(answer.Error.Message, resp))
}

// refusedRow is the error of an answer that lists what was not inserted; nil when all
// was.
func refusedRow(answer response) error {
	for _, e := range answer.InsertErrors {
		for _, p := range e.Errors {
			if p.Reason == "invalid" {
				return deploy.Errorf(deploy.Denied, "the table does not take the row: %s: give it the columns that docs/concepts/rollouts.md lists", strings.TrimPrefix(p.Location+": "+p.Message, ": "))
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

// limited reports whether BigQuery refuses because there was too much.
func limited(problems []problem) bool {
	return slices.ContainsFunc(problems, func(p problem) bool {
		return p.Reason == "rateLimitExceeded" || p.Reason == "quotaExceeded"
	})
}

func said(message string, resp *http.Response) string {
	if message == "" {
		return http.StatusText(resp.StatusCode)
	}
	const most = 300
	return message[:min(most, len(message))]
}

// retryAfter reads the answer's Retry-After.
func retryAfter(resp *http.Response, now time.Time) time.Time {
	seconds, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
	if err != nil || seconds < 0 {
		return time.Time{}
	}
	return now.Add(seconds)
}
