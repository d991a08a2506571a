package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/c785c783/piped/piped/deploy"
)

// Classify returns err, the error of a request to the cluster, with its kind: Unavailable
// when the API server cannot be reached or does not answer (the message names cluster,
// address and cause), otherwise the kind of the answer. Errors that have a kind, and
// context.Canceled, are returned unchanged.
func (c *Cluster) Classify(err error) error {
	var classed *deploy.Error
	switch {
	case err == nil, errors.As(err, &classed), errors.Is(err, context.Canceled):
		return err
	case isNoRequest(err):
		return deploy.Errorf(deploy.Invalid, "%s cannot be asked for an object of that name: %w; correct the name", c, err)
	case Unreachable(err):
		return deploy.Errorf(deploy.Unavailable, "%s cannot be reached: %w", c, cause(err))
	case transient(err):
		return deploy.Errorf(deploy.Unavailable, "%s does not answer now: %w", c, err)
	case apierrors.IsUnauthorized(err):
		return deploy.Errorf(deploy.Invalid, "%s refuses the agent's credentials: %w", c, err)
	case apierrors.IsForbidden(err):
		return deploy.Errorf(deploy.Invalid, "%s refuses: %w%s", c, err, c.remedy(err))
	case apierrors.IsNotFound(err):
		return deploy.Errorf(deploy.NotFound, "%w", err)
	case apierrors.IsConflict(err):
		return deploy.Errorf(deploy.Conflict, "%w", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return deploy.Errorf(deploy.Invalid, "%w", err)
	}
	return err
}

// isNoRequest reports whether no request was sent because the name of the object is no part
// of a URL. Client-go or net/url refuses it.
func isNoRequest(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return false // it was sent, and answered
	}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Op == "parse"
	}
	var escape url.EscapeError
	return errors.As(err, &escape) || strings.Contains(err.Error(), "invalid resource name ") || strings.Contains(err.Error(), "invalid namespace ")
}

// Unreachable reports whether no answer came from the API server.
func Unreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return false
	}
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &netErr) || errors.As(err, &urlErr) || errors.Is(err, context.DeadlineExceeded)
}

// transient reports whether the API server failed or asks for a retry.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || isSchemaError(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || apierrors.IsTimeout(err)
}

// cause removes the request line that net/http puts before the cause.
func cause(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

// several joins errors of several objects in one line.
type several []error

// Error returns the messages, separated by semicolons.
func (s several) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (s several) Unwrap() []error { return s }

// together joins the errors that are not nil.
func together(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return several(errs)
}
