package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
)

// audit writes one record for each call that changes something or was denied: a line of
// JSON in the audit file, or in the log if there is no file.
type audit struct {
	log  *slog.Logger
	path string // "" for the log

	mu     sync.Mutex
	file   slog.Handler
	missed int // records since the last successful write
}

// newAudit returns an audit that writes to the file at path, or to log if path is "". It
// returns an error if the file cannot be written. log must have no component attribute,
// because the audit adds its own.
func newAudit(path string, log *slog.Logger) (*audit, error) {
	a := &audit{log: log.With("component", "audit"), path: path}
	a.file = slog.NewJSONHandler(appender(path), nil)
	if path == "" {
		return a, nil
	}
	if _, err := appender(path).Write(nil); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "write to the audit file (api.auditFile): %w", err)
	}
	return a, nil
}

// record records a call. If the file cannot be written it logs one error and writes the
// records to the log; calls continue.
func (a *audit) record(ctx context.Context, at time.Time, attrs ...slog.Attr) {
	r := slog.NewRecord(at, slog.LevelInfo, "change through the control API", 0)
	r.AddAttrs(attrs...)
	if a.path == "" {
		_ = a.log.Handler().Handle(ctx, r) // regardless of the log level
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.file.Handle(ctx, r)
	if err != nil {
		_ = a.log.Handler().Handle(ctx, r.Clone())
	}
	switch {
	case err == nil && a.missed > 0:
		a.log.InfoContext(ctx, "the audit file is written again; the records it misses are in this log", "file", a.path, "missed", a.missed)
		a.missed = 0
	case err != nil:
		if a.missed++; a.missed == 1 {
			a.log.ErrorContext(ctx, "CANNOT WRITE THE AUDIT FILE (api.auditFile): calls go on, their records are in this log alone until it can be written", "file", a.path, "error", err)
		}
	}
}

// appender is a file that is opened for each write, so that log rotation needs no signal.
type appender string

// Write appends data in one write.
func (path appender) Write(data []byte) (n int, err error) {
	f, err := os.OpenFile(string(path), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if n, err = f.Write(data); err != nil && n > 0 {
		err = errors.Join(err, f.Truncate(before))
	}
	return n, err
}

// auditedFields are the request fields that identify the subject of a call, by path. Other
// fields, such as the data of an event, are not recorded.
var auditedFields = map[string]bool{
	"application_id": true, "application_ids": true, "deployment_id": true, "stage_id": true, "piped_id": true, "command_id": true, "id": true,
	"name": true, "subject": true, "issuer": true, "role": true, "role_name": true, "applications.names": true, "applications.repository_ids": true, "commit": true, "strategy": true, "new_filename": true,
	"platform_provider": true, "deploy_targets_by_plugin.deploy_targets": true,
	"git_path.repo.id": true, "git_path.path": true, "git_path.config_filename": true,
	"repo_remote_url": true, "head_branch": true, "base_branch": true,
	"cascade": true, "dry_run": true, "accept": true, "override_sync_windows": true, "force_rollback": true, "force_no_rollback": true,
	"api_key.id": true, "event_id": true, "receiver": true,
	"repository_id": true, "pull_request": true, "head_commit": true,
}

// Limits of a record: of a value in bytes, and of a list in values.
const (
	maxAudited       = 256
	maxAuditedValues = 20
)

// audited returns the recorded fields of a message; nested names are joined by dots.
func audited(message any) []any {
	m, ok := message.(proto.Message)
	if !ok || m == nil {
		return nil
	}
	return auditedIn("", m.ProtoReflect())
}

// auditedIn returns the log attributes of the recorded fields of m and of the messages
// in it; path precedes their names.
func auditedIn(path string, m protoreflect.Message) (out []any) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out = append(out, auditedField(path, f, v)...)
		return true
	})
	return out
}

// auditedField returns the log attributes of one field: its value if auditedFields has
// it, or those of the messages in it.
func auditedField(path string, f protoreflect.FieldDescriptor, v protoreflect.Value) (out []any) {
	name := path + string(f.Name())
	switch {
	case f.IsMap():
		if f.MapValue().Message() == nil {
			return nil
		}
		v.Map().Range(func(_ protoreflect.MapKey, inner protoreflect.Value) bool {
			out = append(out, auditedIn(name+".", inner.Message())...)
			return true
		})
	case f.IsList():
		if auditedFields[name] && f.Kind() == protoreflect.StringKind {
			out = append(out, slog.Any(name, shortList(v.List())))
		}
	case f.Message() != nil:
		out = auditedIn(name+".", v.Message())
	case !auditedFields[name]:
	case f.Enum() != nil:
		out = append(out, slog.String(name, enumName(f.Enum(), v.Enum())))
	case f.Kind() == protoreflect.BoolKind:
		out = append(out, slog.Bool(name, v.Bool()))
	case f.Kind() == protoreflect.Int32Kind:
		out = append(out, slog.Int64(name, v.Int()))
	case f.Kind() == protoreflect.StringKind:
		out = append(out, slog.String(name, short(v.String())))
	}
	return out
}

// enumName returns the name of an enum value, or its number if it has none.
func enumName(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	if v := e.Values().ByNumber(n); v != nil {
		return string(v.Name())
	}
	return fmt.Sprint(n)
}

// short truncates a value and removes the secret of an API key that was passed as an ID.
func short(value string) string {
	value = access.Redacted(value)
	if len(value) > maxAudited {
		value = strings.ToValidUTF8(value[:maxAudited], "") + "…"
	}
	return value
}

// shortList returns the first values of a list, each shortened.
func shortList(list protoreflect.List) []string {
	values := make([]string, 0, min(list.Len(), maxAuditedValues))
	for i := range cap(values) {
		values = append(values, short(list.Get(i).String()))
	}
	return values
}
