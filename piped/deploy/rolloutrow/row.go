// Package rolloutrow defines the flat row of a rollout or scaling, for the export and for the
// table to which the agent streams. It depends on neither.
package rolloutrow

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Row holds one value per column. nil is NULL: the time was not reached or the duration was
// not measured. Times are formatted by At, durations are milliseconds.
type Row struct {
	ID              string   `json:"id"`
	Kind            string   `json:"kind"`
	ApplicationID   string   `json:"application_id"`
	ApplicationName string   `json:"application_name"`
	DeploymentID    string   `json:"deployment_id"`
	StageID         string   `json:"stage_id"`
	Cluster         string   `json:"cluster"`
	WorkloadKind    string   `json:"workload_kind"`
	Namespace       string   `json:"namespace"`
	Workload        string   `json:"workload"`
	UID             string   `json:"uid"`
	Revision        int64    `json:"revision"`
	RevisionName    string   `json:"revision_name"`
	Commit          string   `json:"commit"`
	Images          []string `json:"images"` // never nil: a repeated column cannot be NULL
	Outcome         string   `json:"outcome"`
	Reason          string   `json:"reason"`
	CausedBy        string   `json:"caused_by"`
	SupersededBy    string   `json:"superseded_by"`
	StartedAt       *string  `json:"started_at"`
	CompletedAt     *string  `json:"completed_at"`
	MarkedAt        *string  `json:"marked_at"`
	DurationMillis  *int64   `json:"duration_ms"`
	ScheduleMillis  *int64   `json:"schedule_ms"`
	PullMillis      *int64   `json:"pull_ms"`
	ReadyMillis     *int64   `json:"ready_ms"`
	FromReplicas    int32    `json:"from_replicas"`
	ToReplicas      int32    `json:"to_replicas"`
}

// At formats Unix milliseconds as RFC 3339 in UTC with milliseconds. It returns nil for 0, a
// time that was not reached.
func At(ms int64) *string {
	if ms == 0 {
		return nil
	}
	text := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
	return &text
}

// Took returns the milliseconds from start to end, nil if end was not reached.
func Took(start, end int64) *int64 {
	if end == 0 {
		return nil
	}
	took := end - start
	return &took
}

// Columns returns the column names in order.
func Columns() []string {
	var names []string
	for field := range reflect.TypeFor[Row]().Fields() {
		names = append(names, field.Tag.Get("json"))
	}
	return names
}

// Values returns the row as text, one value per column: list items separated by spaces,
// "" for NULL.
func (r Row) Values() []string {
	var values []string
	for _, value := range reflect.ValueOf(r).Fields() {
		values = append(values, text(value))
	}
	return values
}

func text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if list, ok := v.Interface().([]string); ok {
		return strings.Join(list, " ")
	}
	return fmt.Sprint(v.Interface())
}
