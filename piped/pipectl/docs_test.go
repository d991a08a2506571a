package pipectl

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/c785c783/piped/piped/build"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// page is a page of docs/reference.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A flag that docs/reference names is one of some command.
func TestDocsNamesFlagsThatThereAre(t *testing.T) {
	flags := map[string]bool{"help": true}
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		for _, set := range []string{c.LocalFlags().FlagUsages(), c.PersistentFlags().FlagUsages()} {
			for _, m := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(set, -1) {
				flags[m[1]] = true
			}
		}
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	root := newRoot(build.Info{})
	root.InitDefaultVersionFlag()
	root.InitDefaultCompletionCmd()
	collect(root)
	for _, m := range regexp.MustCompile("`[^`|\n]*--([a-z][a-z-]*)").FindAllStringSubmatch(page(t, "pipectl.md"), -1) {
		if !flags[m[1]] {
			t.Errorf("pipectl.md names --%s, which is no flag", m[1])
		}
	}
}

// The methods that docs/reference calls by hand are there.
func TestDocsCallsMethodsThatThereAre(t *testing.T) {
	services := map[string]grpc.ServiceDesc{"S": apiservice.APIService_ServiceDesc, "C": controlv1.ControlService_ServiceDesc}
	text, calls := page(t, "api.md"), 0
	for variable, service := range services {
		if !strings.Contains(text, variable+"="+service.ServiceName) {
			t.Errorf("$%s is not %s", variable, service.ServiceName)
		}
		for _, m := range regexp.MustCompile(`\$`+variable+`/(\w+)`).FindAllStringSubmatch(text, -1) {
			unary := slices.ContainsFunc(service.Methods, func(d grpc.MethodDesc) bool { return d.MethodName == m[1] })
			stream := slices.ContainsFunc(service.Streams, func(d grpc.StreamDesc) bool { return d.StreamName == m[1] })
			if calls++; !unary && !stream {
				t.Errorf("%s has no method %s", service.ServiceName, m[1])
			}
		}
	}
	if calls < 5 {
		t.Errorf("api.md calls %d methods, want some of each service", calls)
	}
}

// The exit codes of docs/reference are those of the program.
func TestDocsHasTheExitCodes(t *testing.T) {
	var got []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| `).FindAllStringSubmatch(page(t, "pipectl.md"), -1) {
		got = append(got, row[1])
	}
	var want []string
	for _, code := range []int{ExitSuccess, ExitError, ExitFailure, ExitCancelled, ExitRefused, ExitTimeout, ExitOutOfSync, ExitInterrupted} {
		want = append(want, fmt.Sprint(code))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exit codes in pipectl.md (-want +got):\n%s", diff)
	}
}

// The configuration file of docs/reference can be read, and has every key.
func TestDocsHasEverySetting(t *testing.T) {
	_, rest, _ := strings.Cut(page(t, "pipectl.md"), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	file := settingsFile{path: filepath.Join(t.TempDir(), "config.yaml"), values: map[string]string{}}
	if err := file.parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, s := range settings() {
		if !s.only {
			want[s.flag] = true
		}
	}
	got := map[string]bool{}
	for key := range file.values {
		got[key] = true
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("pipectl.md's file has the keys %v, want %v", got, want)
	}
}
