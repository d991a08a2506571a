package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// logKeys are the keys of the log: each thing has the same key in every line.
// docs/operations.md names the first line.
var logKeys = strings.Fields(`
	app appID deployment stage commit cluster repo component error

	accepted address again api applications at attempt auditRecords branch by bytes chain changed channel check client code command commands dataDir deleted
	deployments description dir duration endedBy event eventID file from handler heals health holds isolation issuer key kind left lines method missed
	movedTo object objects ownerKey page panic path phase pullRequest pullRequests reason receiver records ref reference rejected remote replica report request resource result revision role rollouts
	session sessions spans stack status strategy subject summary target tls to took version wait waiting warning web webhook what window workload
`)

// logCalls are the methods of slog.Logger that take keys, with the number of arguments
// before the keys.
var logCalls = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1,
	"DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3, "With": 0,
}

// TestLogKeys: the source uses exactly the keys in logKeys.
func TestLogKeys(t *testing.T) {
	t.Parallel()
	used := map[string]string{} // position by key
	for _, room := range []string{"piped", "trigger", "planner", "scheduler", "executor"} {
		err := filepath.WalkDir("../../"+room, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(filepath.Dir(path), "test") || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return keysIn(path, used)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(used) < 20 {
		t.Fatalf("only %d keys were found", len(used))
	}
	for key, where := range used {
		if !slices.Contains(logKeys, key) {
			t.Errorf("%s logs with the key %q: use an existing key, or add it to logKeys", where, key)
		}
	}
	for _, key := range logKeys {
		if used[key] == "" {
			t.Errorf("nothing is logged with the key %q", key)
		}
	}
}

// TestLogKeysAreFound: the search finds keys in log calls, and ignores other calls.
func TestLogKeysAreFound(t *testing.T) {
	t.Parallel()
	const source = `package p
func f() {
	log.With("app", 1).Warn("said", "reason", err, "took", took)
	log.Log(ctx, level, "said", key, text, "kept", 1)
	slog.String("method", "GET")
	errors.New("no key", "none")
}`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ast.Inspect(file, func(n ast.Node) bool {
		got = append(got, keysOfCall(n)...)
		return true
	})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"app", "kept", "method", "reason", "took"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func keysIn(path string, used map[string]string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		for _, key := range keysOfCall(n) {
			used[key] = fset.Position(n.Pos()).String()
		}
		return true
	})
	return nil
}

// keysOfCall returns the constant keys of a node that is a log call.
func keysOfCall(n ast.Node) (keys []string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	switch on, _ := method.X.(*ast.Ident); {
	case on == nil:
	case on.Name == "slog" && len(call.Args) > 1:
		return literalText(call.Args[0])
	case on.Name == "http": // http.Error answers a request
		return nil
	}
	before, ok := logCalls[method.Sel.Name]
	if !ok || len(call.Args) < before+2 || (len(call.Args)-before)%2 != 0 {
		return nil
	}
	for i := before; i < len(call.Args); i += 2 {
		keys = append(keys, literalText(call.Args[i])...)
	}
	return keys
}

// literalText returns the text of an expression that is a literal.
func literalText(e ast.Expr) []string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	return []string{value}
}
