package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// explain says what was being done to an object and why it failed, so that its
// author knows what to change.
func (c *Cluster) explain(obj manifest.Object, doing string, err error) error {
	if err == nil {
		return nil
	}
	ref := manifest.Ref(obj.Unstructured)
	what := fmt.Sprintf("%s %s (%s)", doing, ref, obj.Origin)
	switch {
	case apierrors.IsInvalid(err):
		if field := immutableField(err); field != "" {
			return deploy.Errorf(deploy.Invalid,
				"%s: %s of a live %s cannot be changed; undo the change, give the object a new name, or delete the live object and sync again: %w",
				what, field, ref.Kind, err)
		}
		return deploy.Errorf(deploy.Invalid, "%s: %s: %w", what, causes(err), errRefused)
	case apierrors.IsForbidden(err):
		return deploy.Errorf(deploy.Invalid, "%s: %w%s", what, err, c.remedy())
	case apierrors.IsNotFound(err):
		return deploy.Errorf(deploy.Invalid, "%s: its namespace or its kind is not there (any more): %w", what, err)
	case isSchemaError(err) && ref.Kind == "Secret":
		// The API server's message quotes the value.
		return deploy.Errorf(deploy.Invalid, "%s: a field is unknown, a value of stringData is not text, or one of data is not base64: %w", what, errRefused)
	case isSchemaError(err):
		return deploy.Errorf(deploy.Invalid, "%s: %w", what, err)
	}
	err = c.Classify(err)
	return deploy.Errorf(deploy.KindOf(err), "%s: %w", what, err)
}

// errRefused ends a message whose causes were listed by field.
var errRefused = errors.New("refused by the API server")

// causes lists what the API server found wrong, by field.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var out []string
	for _, cause := range status.Status().Details.Causes {
		out = append(out, strings.TrimPrefix(cause.Field+": "+cause.Message, ": "))
	}
	return strings.Join(out, "; ")
}

// immutableWords are how the API server says that a field cannot be changed; no
// reason of its own tells that apart.
func immutableWords() []string {
	return []string{"immutable", "updates to ", "may not change", "may not be changed", "cannot change", "cannot be changed"}
}

// immutableField returns the field whose change the API server forbids.
func immutableField(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		if slices.ContainsFunc(immutableWords(), func(words string) bool { return strings.Contains(cause.Message, words) }) {
			return cause.Field
		}
	}
	return ""
}

// schemaWords are how the API server says that an object does not fit the schema
// of its kind, or that a value such as a quantity cannot be read. It answers some
// of these as if they were its own failure.
func schemaWords() []string {
	return []string{"failed to create typed patch object", "field not declared in schema", "unable to convert unstructured object"}
}

func isSchemaError(err error) bool {
	return slices.ContainsFunc(schemaWords(), func(words string) bool { return strings.Contains(err.Error(), words) })
}
