package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	maxAnswer = 16 << 20 // bytes
	maxShown  = 300      // displayed characters of a server's error message
)

// noRedirect rejects redirects, so that credentials are only sent to the configured
// address.
func noRedirect(next *http.Request, _ []*http.Request) error {
	return fmt.Errorf("it redirects to %s: write that address into analysisProviders if it is the right one", next.URL.Host)
}

// get sends a GET request and decodes a JSON response of status 200 into out. For
// another status the error contains what explain extracts from the body.
func get(ctx context.Context, client *http.Client, req *http.Request, out any, explain func(body []byte) string) error {
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return unreachable(ctx, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refused(resp.StatusCode, explain(body))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return deploy.Errorf(deploy.Unavailable, "the answer cannot be read (is the address right?): %w", err)
	}
	return nil
}

// unreachable returns the error, of kind Unavailable, of a request without a response. It
// names the cause of ctx if that has ended, such as the query timeout.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return deploy.Errorf(deploy.Unavailable, "no answer: %w", err)
}

// refused returns the error of a response with another status than 200.
func refused(status int, why string) error {
	kind, todo := deploy.Invalid, ""
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		todo = ": check the credentials of the provider in the agent's configuration"
	case status == http.StatusTooManyRequests, status >= 500:
		kind = deploy.Unavailable
	}
	if why = oneLine(why); why != "" {
		why = ": " + why
	}
	return deploy.Errorf(kind, "it answers %d %s%s%s", status, http.StatusText(status), why, todo)
}

// oneLine shortens a server's message to one line.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "..."
	}
	return text
}

// plain extracts the beginning of a response.
func plain(body []byte) string { return string(body[:min(len(body), 4*maxShown)]) }

// fromFile reads a credential and trims white space.
func fromFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "read a credential of the analysis provider: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// authorise adds basic authentication from the two files, if configured.
func authorise(req *http.Request, usernameFile, passwordFile string) error {
	if usernameFile == "" {
		return nil
	}
	username, err := fromFile(usernameFile)
	if err != nil {
		return err
	}
	password, err := fromFile(passwordFile)
	if err != nil {
		return err
	}
	req.SetBasicAuth(username, password)
	return nil
}
