package proto_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	tablePath   = "testdata/pipecd-wire.tsv"
	serviceName = "grpc.service.apiservice.APIService"

	// firstOwnNumber is where our own fields and enum values begin on PipeCD's
	// messages and enums.
	firstOwnNumber = 1000
)

// row is one line of the table: one fact of PipeCD's wire contract.
type row struct {
	what   string // message, field, reserved, enum, value or method
	number int    // of the field, the reserved field or the enum value
	owner  string // full name of the message, enum or service, as PipeCD names it
	name   string // of the field, value or method
	typ    string // of the field; "key,value" for a map
	label  string // of the field: single, repeated or map
}

func TestDescriptorsCarryPipeCDsContract(t *testing.T) {
	rows := readTable(t)
	for _, problem := range compare(rows) {
		t.Error(problem)
	}
}

func TestTableIsComplete(t *testing.T) {
	counts := map[string]int{}
	for _, r := range readTable(t) {
		counts[r.what]++
	}
	want := map[string]int{"message": 81, "field": 321, "reserved": 14, "enum": 13, "value": 60, "method": 23}
	for what, n := range want {
		if counts[what] != n {
			t.Errorf("%s holds %d rows %q, want %d", tablePath, counts[what], what, n)
		}
	}
}

// TestComparisonFindsChanges proves that the comparison is able to fail: each
// case changes one fact of the table and must be reported.
func TestComparisonFindsChanges(t *testing.T) {
	const app = "model.Application"
	cases := map[string]struct {
		what, owner, name string
		change            func(*row)
		want              string
	}{
		"renumbered field":      {"field", app, "name", func(r *row) { r.number = 200 }, "model.Application.name: no field has number 200"},
		"renamed field":         {"field", app, "name", func(r *row) { r.name = "title" }, "model.Application: field 2 is name, want title"},
		"retyped field":         {"field", app, "disabled", func(r *row) { r.typ = "int32" }, "model.Application.disabled: type is bool, want int32"},
		"retyped message":       {"field", app, "sync_state", func(r *row) { r.typ = "model.Commit" }, "model.Application.sync_state: type is model.ApplicationSyncState, want model.Commit"},
		"relabelled field":      {"field", "model.Deployment", "stages", func(r *row) { r.label = "single" }, "model.Deployment.stages: label is repeated, want single"},
		"retyped map":           {"field", app, "labels", func(r *row) { r.typ = "string,int64" }, "model.Application.labels: type is string,string, want string,int64"},
		"renumbered enum value": {"value", "model.DeploymentStatus", "DEPLOYMENT_SUCCESS", func(r *row) { r.number = 7 }, "model.DeploymentStatus.DEPLOYMENT_SUCCESS: number is 4, want 7"},
		"lost enum value":       {"value", "model.SyncStrategy", "AUTO", func(r *row) { r.name = "MANUAL" }, "model.SyncStrategy: no value MANUAL"},
		"number not reserved":   {"reserved", app, "-", func(r *row) { r.number = 50 }, "model.Application: number 50 is not reserved"},
		"lost message":          {"message", "model.Commit", "-", func(r *row) { r.owner = "model.Change" }, "model.Change: no such message"},
		"lost method":           {"method", serviceName, "GetCommand", func(r *row) { r.name = "FetchCommand" }, serviceName + ": no method FetchCommand"},
		"own field below 1000":  {"field", app, "name", func(r *row) { r.owner = "model.Commit" }, "model.Application.name: number 2 is PipeCD's to give, ours begin at 1000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			rows := readTable(t)
			i := slices.IndexFunc(rows, func(r row) bool {
				return r.what == c.what && r.owner == c.owner && r.name == c.name
			})
			if i < 0 {
				t.Fatalf("no row %s %s %s", c.what, c.owner, c.name)
			}
			c.change(&rows[i])
			if got := compare(rows); !slices.Contains(got, c.want) {
				t.Errorf("compare reported %q, want among them %q", got, c.want)
			}
		})
	}
}

func TestServiceNamesAreTheMethodPaths(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{apiservice.APIService_ServiceDesc.ServiceName, serviceName},
		{controlv1.ControlService_ServiceDesc.ServiceName, "piped.control.v1.ControlService"},
		{string(modelv1.File_piped_model_v1_application_proto.Package()), "piped.model.v1"},
	} {
		if c.got != c.want {
			t.Errorf("name is %q, want %q", c.got, c.want)
		}
	}
	if n := len(apiservice.APIService_ServiceDesc.Methods); n != 23 {
		t.Errorf("APIService has %d unary methods, want 23", n)
	}
	if n := len(apiservice.APIService_ServiceDesc.Streams); n != 0 {
		t.Errorf("APIService has %d streaming methods, want none", n)
	}
}

// compare returns every difference between the table and the registered
// descriptors: facts that are missing or different, and numbers below 1000 that
// the table does not know.
func compare(rows []row) []string {
	var problems []string
	known := map[string]map[int]bool{} // owner -> numbers that PipeCD gave
	methods := map[string]bool{}
	for _, r := range rows {
		if known[r.owner] == nil {
			known[r.owner] = map[int]bool{}
		}
		var problem string
		switch r.what {
		case "message":
			problem = checkMessage(r)
		case "field":
			known[r.owner][r.number] = true
			problem = checkField(r)
		case "reserved":
			problem = checkReserved(r)
		case "enum":
			problem = checkEnum(r)
		case "value":
			known[r.owner][r.number] = true
			problem = checkValue(r)
		case "method":
			methods[r.name] = true
			problem = checkMethod(r)
		default:
			problem = fmt.Sprintf("row of unknown kind %q", r.what)
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	for owner, numbers := range known {
		problems = append(problems, foreignNumbers(owner, numbers)...)
	}
	if s, ok := find(serviceName).(protoreflect.ServiceDescriptor); ok {
		for i := range s.Methods().Len() {
			if name := string(s.Methods().Get(i).Name()); !methods[name] {
				problems = append(problems, fmt.Sprintf("%s: method %s is not PipeCD's", serviceName, name))
			}
		}
	}
	return problems
}

func checkMessage(r row) string {
	if _, ok := find(r.owner).(protoreflect.MessageDescriptor); !ok {
		return r.owner + ": no such message"
	}
	return ""
}

func checkField(r row) string {
	m, ok := find(r.owner).(protoreflect.MessageDescriptor)
	if !ok {
		return r.owner + ": no such message"
	}
	f := m.Fields().ByNumber(protoreflect.FieldNumber(r.number))
	if f == nil {
		return fmt.Sprintf("%s.%s: no field has number %d", r.owner, r.name, r.number)
	}
	typ, label := describe(f)
	switch {
	case string(f.Name()) != r.name:
		return fmt.Sprintf("%s: field %d is %s, want %s", r.owner, r.number, f.Name(), r.name)
	case label != r.label:
		return fmt.Sprintf("%s.%s: label is %s, want %s", r.owner, r.name, label, r.label)
	case typ != r.typ:
		return fmt.Sprintf("%s.%s: type is %s, want %s", r.owner, r.name, typ, r.typ)
	}
	return ""
}

func checkReserved(r row) string {
	m, ok := find(r.owner).(protoreflect.MessageDescriptor)
	if !ok {
		return r.owner + ": no such message"
	}
	if !m.ReservedRanges().Has(protoreflect.FieldNumber(r.number)) {
		return fmt.Sprintf("%s: number %d is not reserved", r.owner, r.number)
	}
	return ""
}

func checkEnum(r row) string {
	if _, ok := find(r.owner).(protoreflect.EnumDescriptor); !ok {
		return r.owner + ": no such enum"
	}
	return ""
}

func checkValue(r row) string {
	e, ok := find(r.owner).(protoreflect.EnumDescriptor)
	if !ok {
		return r.owner + ": no such enum"
	}
	v := e.Values().ByName(protoreflect.Name(r.name))
	if v == nil {
		return fmt.Sprintf("%s: no value %s", r.owner, r.name)
	}
	if int(v.Number()) != r.number {
		return fmt.Sprintf("%s.%s: number is %d, want %d", r.owner, r.name, v.Number(), r.number)
	}
	return ""
}

func checkMethod(r row) string {
	s, ok := find(r.owner).(protoreflect.ServiceDescriptor)
	if !ok {
		return r.owner + ": no such service"
	}
	m := s.Methods().ByName(protoreflect.Name(r.name))
	if m == nil {
		return fmt.Sprintf("%s: no method %s", r.owner, r.name)
	}
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return fmt.Sprintf("%s.%s: is streaming, want unary", r.owner, r.name)
	}
	pkg := strings.TrimSuffix(r.owner, "APIService")
	in, out := pkg+r.name+"Request", pkg+r.name+"Response"
	if string(m.Input().FullName()) != in || string(m.Output().FullName()) != out {
		return fmt.Sprintf("%s.%s: takes %s and returns %s, want %s and %s",
			r.owner, r.name, m.Input().FullName(), m.Output().FullName(), in, out)
	}
	return ""
}

// foreignNumbers returns a problem for each field or enum value of owner that
// has a number below 1000 which the table does not know.
func foreignNumbers(owner string, known map[int]bool) []string {
	var problems []string
	check := func(name protoreflect.Name, number int) {
		if number < firstOwnNumber && !known[number] {
			problems = append(problems, fmt.Sprintf("%s.%s: number %d is PipeCD's to give, ours begin at %d",
				owner, name, number, firstOwnNumber))
		}
	}
	switch d := find(owner).(type) {
	case protoreflect.MessageDescriptor:
		for i := range d.Fields().Len() {
			check(d.Fields().Get(i).Name(), int(d.Fields().Get(i).Number()))
		}
	case protoreflect.EnumDescriptor:
		for i := range d.Values().Len() {
			check(d.Values().Get(i).Name(), int(d.Values().Get(i).Number()))
		}
	}
	return problems
}

// describe returns a field's type and label in the table's words.
func describe(f protoreflect.FieldDescriptor) (typ, label string) {
	switch {
	case f.IsMap():
		return typeName(f.MapKey()) + "," + typeName(f.MapValue()), "map"
	case f.IsList():
		return typeName(f), "repeated"
	case f.HasOptionalKeyword() || f.ContainingOneof() != nil:
		return typeName(f), "optional"
	default:
		return typeName(f), "single"
	}
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return pipecdName(f.Message().FullName())
	case protoreflect.EnumKind:
		return pipecdName(f.Enum().FullName())
	default:
		return f.Kind().String()
	}
}

// find returns the descriptor of what PipeCD calls name, or nil.
func find(name string) protoreflect.Descriptor {
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		name = "piped.model.v1." + rest
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	return d
}

// pipecdName is the reverse of find: PipeCD's name for one of ours. The package
// of a message is not on the wire.
func pipecdName(name protoreflect.FullName) string {
	if rest, ok := strings.CutPrefix(string(name), "piped.model.v1."); ok {
		return "model." + rest
	}
	return string(name)
}

func readTable(t *testing.T) []row {
	t.Helper()
	f, err := os.Open(tablePath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.Comment = '\t', '#'
	records, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, rec := range records[1:] { // the first names the columns
		number := 0
		if rec[1] != "-" {
			if number, err = strconv.Atoi(rec[1]); err != nil {
				t.Fatalf("%s: %v", tablePath, err)
			}
		}
		rows = append(rows, row{rec[0], number, rec[2], rec[3], rec[4], rec[5]})
	}
	return rows
}
