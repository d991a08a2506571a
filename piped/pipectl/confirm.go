package pipectl

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// confirm asks the user before an operation that cannot be undone, unless yes is set.
// Without a terminal it fails. It returns nil only for a confirmation.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return hint(errors.New("nothing was done: this needs a yes, and there is no terminal to ask on"), "check what it would do, and add --yes")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", clean(question))
	answer := make(chan string, 1)
	// The read cannot be interrupted. Only Ctrl-C abandons the goroutine, just before
	// the program ends.
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // no answer means no
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("nothing was done: the answer was not yes")
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return fmt.Errorf("nothing was done: %w", cmd.Context().Err())
	}
}
