package githost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// maxAnswer limits how much of a response is read; the largest is a page of comments.
const maxAnswer = 16 << 20

// restAPI is a JSON API.
type restAPI struct {
	url    string // without a trailing slash
	header string // header with the token, after scheme
	scheme string
	token  strict.Secret
	client *http.Client
}

// get reads the object at path into answer.
func (a restAPI) get(ctx context.Context, path string, answer any) error {
	_, err := a.call(ctx, http.MethodGet, path, nil, answer, 0)
	return err
}

// send sends body; the content of the response is ignored.
func (a restAPI) send(ctx context.Context, method, path string, body any) error {
	_, err := a.call(ctx, method, path, body, &struct{}{}, 0)
	return err
}

// call sends body, unless nil, and reads the response into answer. An unsuccessful status
// is an error, except known, which is returned. A successful response that is not JSON is
// an error of kind deploy.Unavailable, as sent by proxies of a host under maintenance.
func (a restAPI) call(ctx context.Context, method, path string, body, answer any, known int) (status int, err error) {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		sent = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, sent)
	if err != nil {
		return 0, deploy.Errorf(deploy.Invalid, "%w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(a.header, a.scheme+a.token.Reveal())
	res, err := a.client.Do(req)
	if err != nil {
		return 0, unreachable(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, unreachable(err)
	}
	switch {
	case res.StatusCode == known:
		return known, nil
	case res.StatusCode < 200 || res.StatusCode > 299:
		said := message(data)
		if err := limitedBy(res.StatusCode, res.Header, said); err != nil {
			return res.StatusCode, err
		}
		return res.StatusCode, refusedBy(res.StatusCode, said)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return res.StatusCode, deploy.Errorf(deploy.Unavailable, "the answer of %s is not JSON, as during maintenance; if this lasts, check type and apiURL of spec.gitHosts", a.url)
	}
	return res.StatusCode, nil
}

// unreachable returns the error of a host that does not answer.
func unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which the caller adds
	}
	return deploy.Errorf(deploy.Unavailable, "the host does not answer: %w", err)
}

// message returns the error message in a response.
func message(data []byte) string {
	var said struct {
		Message json.RawMessage `json:"message"`
		Error   string          `json:"error"`
	}
	if json.Unmarshal(data, &said) != nil {
		return "no JSON"
	}
	var text string
	switch {
	case json.Unmarshal(said.Message, &text) == nil && text != "":
		return text
	case len(said.Message) > 0 && string(said.Message) != "null":
		return string(said.Message)
	}
	return said.Error
}
