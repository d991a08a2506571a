package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// explain returns the classified error of a request for an object. The message contains the
// action (doing, such as "apply"), the object, the cause and what to change. Nil remains nil.
func (c *Client) explain(obj manifest.Object, doing string, err error) error {
	if err == nil {
		return nil
	}
	ref := manifest.Ref(obj.Unstructured)
	what := fmt.Sprintf("%s %s (%s)", doing, ref, obj.Origin)
	switch {
	case apierrors.IsInvalid(err):
		if fields := immutableFields(err); len(fields) > 0 {
			return deploy.Errorf(deploy.Invalid, "%s: %s of a live %s cannot be changed; undo the change, give the object a new name, %s: %s: %w",
				what, fields[0], ref.Kind, wayToReplace(obj), causes(err), errRefused)
		}
		return deploy.Errorf(deploy.Invalid, "%s: %s: %w", what, causes(err), errRefused)
	case apierrors.IsForbidden(err):
		return deploy.Errorf(deploy.Invalid, "%s: %w%s", what, err, c.Remedy(err))
	case apierrors.IsNotFound(err):
		return deploy.Errorf(deploy.Invalid, "%s: its namespace or its kind is not there (any more): %w", what, err)
	case cluster.IsSchemaError(err) && ref.Kind == "Secret":
		// The API server's message is omitted, because it quotes the secret value.
		return deploy.Errorf(deploy.Invalid, "%s: a field is unknown, a value of stringData is not text, or one of data is not base64: %w", what, errRefused)
	case cluster.IsSchemaError(err):
		return deploy.Errorf(deploy.Invalid, "%s: %w", what, err)
	}
	err = c.Classify(err)
	return deploy.Errorf(deploy.KindOf(err), "%s: %w", what, err)
}

// errRefused replaces the API server's error in messages that list its causes by field.
var errRefused = errors.New("refused by the API server")

// wayToReplace returns the advice on how to change an immutable field by replacing the object.
func wayToReplace(obj manifest.Object) string {
	const byHand = "or delete the live object and sync again"
	if !replaceable(obj.GroupVersionKind().GroupKind()) {
		return byHand
	}
	return "have it deleted and created anew with the annotation " + manifest.AnnotationForceSyncByReplace + `: "` + replaceEnabled + `", ` + byHand
}

// causes formats the API server's causes as "field: message; ...", or err without causes.
func causes(err error) string {
	found := causesOf(err)
	if len(found) == 0 {
		return err.Error()
	}
	var out []string
	for _, cause := range found {
		out = append(out, strings.TrimPrefix(cause.Field+": "+withoutContent(cause.Message), ": "))
	}
	return strings.Join(out, "; ")
}

// longestValue is the maximum length of a value that is repeated from the API server's
// message: a whole pod template is unreadable and may contain secrets.
const longestValue = 120

// withoutContent removes a long value from a message such as "Invalid value: {...}: field is
// immutable".
func withoutContent(message string) string {
	const quotes = "Invalid value: "
	end := strings.LastIndex(message, ": ")
	if !strings.HasPrefix(message, quotes) || end < len(quotes)+longestValue {
		return message
	}
	return "Invalid value" + message[end:]
}

// immutableWords are parts of the API server's messages for immutable fields. It has no reason
// code for them.
func immutableWords() []string {
	return []string{"immutable", "updates to ", "may not change", "may not be changed", "cannot change", "cannot be changed"}
}

// saysImmutable reports whether the message of a cause is about an immutable field.
func saysImmutable(message string) bool {
	return slices.ContainsFunc(immutableWords(), func(words string) bool { return strings.Contains(message, words) })
}
