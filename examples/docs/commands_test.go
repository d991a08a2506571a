package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/c785c783/piped/piped/pipectl"
	_ "github.com/c785c783/piped/proto/pipecd/apiservice" // the services that grpcurl calls
	_ "github.com/c785c783/piped/proto/piped/control/v1"
)

// Every command of a page can be run: its program is known, and its command, flags and
// files are there.
func TestEveryCommandParses(t *testing.T) {
	count := 0
	for _, b := range blocks(t, "sh", "console") {
		text := strings.ReplaceAll(b.text, "\\\n", " ")
		for i, line := range strings.Split(text, "\n") {
			if b.language == "console" {
				var prompt bool
				if line, prompt = strings.CutPrefix(line, "$ "); !prompt {
					continue // output
				}
			}
			for _, words := range parseLine(line) {
				count++
				if err := checkCommand(words); err != nil {
					t.Errorf("%s:%d: %s: %v", b.page, b.line+i+1, strings.Join(words, " "), err)
				}
			}
		}
	}
	if count < 60 {
		t.Errorf("found only %d commands", count)
	}
}

// parseLine returns the commands of a line of shell as words: without comments,
// redirections and assignments, and with quotes removed.
func parseLine(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	begun := false
	endWord := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	endCommand := func() {
		endWord()
		for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
			words = words[1:]
		}
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ">") || strings.HasPrefix(w, "<") }); i >= 0 {
			words = words[:i]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	quote := rune(0)
	for _, r := range strings.ReplaceAll(line, "2>&1", "") {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote != 0:
			word.WriteRune(r)
		case r == '#' && !begun:
			endCommand()
			return commands
		case r == ' ' || r == '\t':
			endWord()
		case r == '|' || r == '&' || r == ';':
			endCommand()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	endCommand()
	return commands
}

// standard are programs of the machine, whose commands are theirs to check.
var standard = []string{"age", "age-keygen", "argocd", "flux", "cat", "cd", "chmod", "cp", "cut", "echo", "export", "git", "grep", "helm", "journalctl", "jq", "kill", "ls", "mkdir", "mv", "openssl", "rm",
	"sed", "sleep", "sops", "source", "ssh-keyscan", "systemctl", "test", "until", "do", "done", "wait"}

func checkCommand(words []string) error {
	args := words[1:]
	switch name := filepath.Base(words[0]); {
	case name == "pipectl":
		return checkClient(args)
	case name == "piped":
		return checkAgent(args)
	case name == "devcluster":
		return inFile("examples/devcluster/*.go", `"`+args[0])
	case name == "replicachaos":
		return checkFlags("examples/replicachaos/*.go", args)
	case name == "make":
		for _, target := range args {
			if !strings.Contains(target, "=") {
				if err := inFile("Makefile", "\n"+target+":"); err != nil {
					return err
				}
			}
		}
		return nil
	case name == "grpcurl":
		return checkCall(args)
	case name == "curl":
		return checkCurl(args)
	case name == "kubectl":
		return checkKubectl(args)
	case name == "go":
		return checkGo(args)
	case slices.Contains(standard, name):
		return nil
	}
	return fmt.Errorf("the program is not known")
}

// checkClient finds a command of pipectl and reads its flags.
func checkClient(args []string) error {
	cmd, rest, err := client().Find(args)
	if err != nil {
		return err
	}
	if cmd.HasSubCommands() && cmd.Parent() != nil {
		return fmt.Errorf("%q needs a command", cmd.CommandPath())
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Parent() == nil || slices.Contains(rest, "--help") {
		return nil
	}
	var missing error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if pipectl.Required(f) && !f.Changed {
			missing = fmt.Errorf("--%s is missing", f.Name)
		}
	})
	if missing == nil && cmd.Args != nil && !isCompletion(cmd) {
		return cmd.Args(cmd, cmd.Flags().Args())
	}
	return missing
}

func isCompletion(cmd *cobra.Command) bool { return cmd.Parent().Name() == "completion" }

// checkAgent checks a command of piped by the source of its program.
func checkAgent(args []string) error {
	for i, arg := range args {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		var err error
		switch {
		case i == 0:
			err = inFile("piped/cmd/piped/*.go", `Use: +"`+arg+`\b`)
		case isFlag:
			err = inFile("piped/cmd/piped/*.go", `"`+name+`"`)
		}
		if err != nil && arg != "--version" {
			return err
		}
	}
	return nil
}

// inFile fails unless a file of the repository matches a regular expression.
func inFile(pattern, expression string) error {
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if regexp.MustCompile(expression).Match(text) {
			return nil
		}
	}
	return fmt.Errorf("%s does not match %s", pattern, expression)
}

// services are those of the variables that the pages use.
var services = map[string]protoreflect.FullName{"$S": "grpc.service.apiservice.APIService", "$C": "piped.control.v1.ControlService"}

// checkCall finds the method of a call and reads its request.
func checkCall(args []string) error {
	var data, method string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-H", "-cacert", "-cert", "-key":
			i++
		case "-d":
			i++
			data = args[i]
		default:
			method = args[i]
		}
	}
	service, name, called := strings.Cut(method, "/")
	if !called {
		return nil // list, describe
	}
	m, err := findMethod(service, name)
	if err != nil {
		return err
	}
	return protojson.Unmarshal([]byte(data), dynamicpb.NewMessage(m.Input()))
}

func findMethod(service, name string) (protoreflect.MethodDescriptor, error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(services[service])
	if err != nil {
		return nil, err
	}
	m := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, fmt.Errorf("%s has no such method", services[service])
	}
	return m, nil
}

// checkCurl finds the method of a call of the HTTP API. TestHTTPAPI makes the call.
func checkCurl(args []string) error {
	service, name, _ := strings.Cut(args[len(args)-1], "/")
	_, err := findMethod(service, name)
	return err
}

func checkKubectl(args []string) error {
	for i, arg := range args {
		if (arg == "-k" || arg == "-f") && i+1 < len(args) && strings.HasPrefix(args[i+1], "examples/") {
			if _, err := os.Stat(filepath.Join(root, args[i+1])); err != nil {
				return err
			}
		}
		// "kubectl exec ... -- piped ..." runs a program of ours.
		if arg == "--" && args[i+1] == "piped" {
			return checkAgent(args[i+2:])
		}
	}
	return nil
}

// checkFlags checks that a program of this repository has the flags of a command.
func checkFlags(source string, args []string) error {
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "-"); ok {
			if err := inFile(source, `"`+name+`",`); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGo checks the packages and files that a go command names.
func checkGo(args []string) error {
	for _, arg := range args {
		if rest, local := strings.CutPrefix(arg, "./"); local && !strings.HasSuffix(arg, "...") {
			if _, err := os.Stat(filepath.Join(root, rest)); err != nil {
				return err
			}
		}
	}
	return nil
}
