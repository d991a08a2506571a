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

// maxAnswer bounds what is read of an answer. A page of comments is the largest.
const maxAnswer = 16 << 20

// restAPI is an API that speaks JSON.
type restAPI struct {
	url    string // without a slash at its end
	header string // that the token stands in, after scheme
	scheme string
	token  strict.Secret
	client *http.Client
}

// get reads what is at path into answer.
func (a restAPI) get(ctx context.Context, path string, answer any) error {
	_, err := a.call(ctx, http.MethodGet, path, nil, answer, 0)
	return err
}

// send sends body; what the answer says does not matter as long as it is an object.
func (a restAPI) send(ctx context.Context, method, path string, body any) error {
	_, err := a.call(ctx, method, path, body, &struct{}{}, 0)
	return err
}

// call sends body, unless it is nil, and reads the answer into answer. A status that
// is no success is an error, but the one in known, which is returned. A success that is
// not JSON is an error of kind deploy.Unavailable: proxies answer so for a host that is
// being maintained.
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
		return res.StatusCode, deploy.Errorf(deploy.Unavailable, "what %s answers is not the JSON of its API, but perhaps a page that says it is being maintained; if that lasts, check type and apiURL of spec.gitHosts", a.url)
	}
	return res.StatusCode, nil
}

// unreachable is the error for a host that does not answer.
func unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which the caller names
	}
	return deploy.Errorf(deploy.Unavailable, "the host does not answer: %w", err)
}

// message returns what an answer says for people.
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
