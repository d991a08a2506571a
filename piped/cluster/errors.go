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

// Classify adds a kind to err, the error of a request to the cluster. The kind is Unavailable
// when the API server cannot be reached or does not answer (the message then names cluster,
// address and cause), otherwise that of the response: Invalid, NotFound or Conflict. Other
// errors, errors that have a kind, and context.Canceled are returned unchanged.
func (c *Cluster) Classify(err error) error {
	var classed *deploy.Error
	switch {
	case err == nil, errors.As(err, &classed), errors.Is(err, context.Canceled):
		return err
	case isNoRequest(err):
		return deploy.Errorf(deploy.Invalid, "%s cannot be asked for an object of that name: %w; correct the name", c, err)
	case Unreachable(err):
		return deploy.Errorf(deploy.Unavailable, "%s cannot be reached: %w", c, cause(err))
	case Transient(err):
		return deploy.Errorf(deploy.Unavailable, "%s does not answer now: %w", c, err)
	case apierrors.IsUnauthorized(err):
		return deploy.Errorf(deploy.Invalid, "%s refuses the agent's credentials: %w", c, err)
	case apierrors.IsForbidden(err):
		return deploy.Errorf(deploy.Invalid, "%s refuses: %w%s", c, err, c.Remedy(err))
	case apierrors.IsNotFound(err):
		return deploy.Errorf(deploy.NotFound, "%w", err)
	case apierrors.IsConflict(err):
		return deploy.Errorf(deploy.Conflict, "%w", err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return deploy.Errorf(deploy.Invalid, "%w", err)
	}
	return err
}

// isNoRequest reports whether client-go or net/url refused to send a request because the
// name or namespace of an object is not a valid part of a URL.
func isNoRequest(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return false // the API server answered
	}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Op == "parse"
	}
	var escape url.EscapeError
	return errors.As(err, &escape) || strings.Contains(err.Error(), "invalid resource name ") || strings.Contains(err.Error(), "invalid namespace ")
}

// Unreachable reports whether err means that the API server sent no response: it is a network
// error or an exceeded deadline.
func Unreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return false
	}
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &netErr) || errors.As(err, &urlErr) || errors.Is(err, context.DeadlineExceeded)
}

// Transient reports whether err is a response that a retry may change: a 5xx status, 429 or a
// timeout. Schema errors are not transient, although the API server answers some with 500.
func Transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || IsSchemaError(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || apierrors.IsTimeout(err)
}

// cause returns err without the method and URL that net/http puts before it.
func cause(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

// schemaWords are parts of the API server's messages for an object that does not match the
// schema of its kind, or with a value, such as a quantity, that cannot be parsed. The API
// server answers some of these with an internal error.
func schemaWords() []string {
	return []string{"failed to create typed patch object", "field not declared in schema", "unable to convert unstructured object"}
}

// IsSchemaError reports whether the API server refused an object because it does not match
// the schema of its kind. Err must not be nil.
func IsSchemaError(err error) bool {
	return slices.ContainsFunc(schemaWords(), func(words string) bool { return strings.Contains(err.Error(), words) })
}
