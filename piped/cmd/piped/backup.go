package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/backup"
)

func backupCommand(stdout, stderr io.Writer) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "backup --config FILE BACKUP", Short: "Write all stored data of an agent into one file", Args: oneFile("BACKUP"),
		Long: `Write all stored data of an agent into one file, BACKUP, or to the standard output when
BACKUP is -: a consistent snapshot of its database, and the keys in its data
directory. piped restore restores it into SQLite or PostgreSQL, whichever it came
from. Mirrors and caches are not included: the agent recreates them.

Run it as the agent's user, on the machine with the agent's files and with the
agent's version. The agent may be running. BACKUP is replaced atomically when the
backup is complete.

BACKUP contains the agent's keys, and the key to the encrypted data of the agent.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := app.Kinds().LoadPiped(path)
			if err != nil {
				return err
			}
			var c backup.Contents
			write := func(w io.Writer) (err error) {
				c, err = app.Backup(cmd.Context(), cfg, built().Version, time.Now(), w)
				return err
			}
			if args[0] == "-" {
				err = write(stdout)
			} else {
				err = writeWhole(args[0], write)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(stderr, "backed up: %d rows, schema %d. It contains the agent's keys: store it where no other user can read it\n", c.Total(), c.Schema)
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the agent's configuration file (kind: Piped)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

func restoreCommand(stderr io.Writer) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "restore --config FILE BACKUP", Short: "Restore a backup of piped backup", Args: oneFile("BACKUP"),
		Long: `Restore BACKUP, written by piped backup, into the configured database, which must
be empty, and into a data directory without other keys. The backup may come from
another database engine or an older version of piped.

Run it as the agent's user, before the agent is started. The command checks all of
BACKUP before it changes anything. If it is interrupted, run it again: until the
restore is complete no agent starts on the database.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := app.Kinds().LoadPiped(path)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				return &failure{exitUsage, errors.New("a backup is read twice: write it into a file first")}
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close() // opened for reading only
			c, err := app.Restore(cmd.Context(), cfg, file)
			if err != nil {
				return err
			}
			fmt.Fprintf(stderr, "restored: %d rows of %s, written by piped %s. Start the agent\n", c.Total(), c.At.Format(time.RFC3339), c.Version)
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "the agent's configuration file (kind: Piped)")
	_ = cmd.MarkFlagRequired("config") // the flag exists
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// oneFile requires one argument, the name of a file.
func oneFile(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return &failure{exitUsage, fmt.Errorf("name one file, %s, and no more", name)}
		}
		return nil
	}
}

// writeWhole atomically creates a file that only its owner can read.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: name another one, or - for the standard output", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), path)
}
