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
	"github.com/c785c783/piped/piped/config"
)

func backupCommand(stdout, stderr io.Writer) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "backup --config FILE BACKUP", Short: "Write all that an agent keeps into one file", Args: oneFile("BACKUP"),
		Long: `Write all that an agent keeps into one file, BACKUP, or to the standard output when
BACKUP is -: what is in its database, as it is at one moment, and the keys in its
data directory. piped restore brings it back, on SQLite or PostgreSQL, wherever it
came from. Mirrors and caches are left out: they are made again.

Run it as the agent's user, where the agent's files are and with the agent's version.
The agent need not be stopped. BACKUP is there when it is whole, and not before; one
that was there is replaced.

BACKUP holds the agent's keys, and what is needed to read what the agent keeps
encrypted.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := config.LoadPiped(path)
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
			fmt.Fprintf(stderr, "backed up: %d rows, schema %d. It holds the agent's keys: keep it where nobody else can read it\n", c.Total(), c.Schema)
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
		Use: "restore --config FILE BACKUP", Short: "Bring back what piped backup wrote", Args: oneFile("BACKUP"),
		Long: `Bring back what piped backup wrote into the file BACKUP: into the database that the
configuration names, which must be empty, and a data directory that has no other
keys. It may have been of another engine and an older version of piped.

Run it as the agent's user, before the agent is started. All of BACKUP is checked
before anything is changed. When it is interrupted, run it again: until all rows are
there no agent starts on the database, and from then on it is not empty.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := config.LoadPiped(path)
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
			defer file.Close() //nolint:errcheck // it was only read
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

// oneFile asks for one argument, the name of a file.
func oneFile(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return &failure{exitUsage, fmt.Errorf("name one file, %s, and no more", name)}
		}
		return nil
	}
}

// writeWhole makes a file that only its owner may read, whole or not at all.
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
