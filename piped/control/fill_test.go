package control

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// filler fills domain values: every field gets a non-zero value, every string contains one
// byte of invalid UTF-8.
type filler struct {
	n      int
	within map[reflect.Type]bool // types being filled
}

// typed are valid values of restricted types. None converts to the zero value, so that a
// missing conversion is noticed.
var typed = map[reflect.Type]any{
	reflect.TypeFor[deploy.Status]():        deploy.RollingBack,
	reflect.TypeFor[deploy.StageStatus]():   deploy.StageExited,
	reflect.TypeFor[deploy.SyncStatus]():    deploy.OutOfSync,
	reflect.TypeFor[deploy.DriftKind]():     deploy.DriftExtra,
	reflect.TypeFor[deploy.DriftEnd]():      deploy.DriftAbandoned,
	reflect.TypeFor[deploy.CommandStatus](): deploy.CommandTimeout,
	reflect.TypeFor[deploy.CommandType]():   deploy.CommandCancel,
	reflect.TypeFor[deploy.EventStatus]():   deploy.EventOutdated,
	reflect.TypeFor[deploy.Strategy]():      deploy.StrategyPipeline,
	reflect.TypeFor[deploy.TriggerKind]():   deploy.OnChain,
	reflect.TypeFor[deploy.Severity]():      deploy.SeverityError,
	reflect.TypeFor[deploy.Role]():          deploy.ReadWrite,
	reflect.TypeFor[[]byte]():               []byte("hash"),
	reflect.TypeFor[json.RawMessage]():      json.RawMessage(`{"approvers":["ada"],"minApproverNum":2}`),
	reflect.TypeFor[time.Duration]():        90 * time.Second,
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	if value, ok := typed[v.Type()]; ok {
		v.Set(reflect.ValueOf(value))
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_000 + int64(f.n)*1234)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d-\xff", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Pointer:
		if f.within[v.Type()] { // a recursive type
			return
		}
		f.within[v.Type()] = true
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
		delete(f.within, v.Type())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
			if v.Type() == reflect.TypeFor[deploy.ArtifactVersion]() && v.Type().Field(i).Name == "Kind" {
				v.Field(i).SetString("CONTAINER_IMAGE")
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("key-%d-\xff", f.n)), reflect.ValueOf(fmt.Sprintf("value-%d", f.n)))
	default:
		panic("no value for " + v.Type().String())
	}
}

func filled[T any]() T {
	var v T
	(&filler{within: map[reflect.Type]bool{}}).fill(reflect.ValueOf(&v).Elem())
	return v
}
