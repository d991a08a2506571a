package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/backup"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// keptFiles are the files of the data directory that cannot be recreated. Mirrors, charts and
// the directories of scripts can; an unsent trace is no loss.
var keptFiles = []string{storeKeyFile, ownerKeyFile}

// Backup writes a consistent snapshot of all state of an agent to w. The agent may be
// running. The output is invalid if Backup returns an error.
func Backup(ctx context.Context, cfg *config.Piped, version string, now time.Time, w io.Writer) (c backup.Contents, err error) {
	if err := hasRun(cfg); err != nil {
		return c, err
	}
	src := backup.Source{Files: map[string][]byte{}, Version: version, At: now}
	for _, name := range keptFiles {
		data, err := os.ReadFile(keptPath(cfg, name))
		if errors.Is(err, fs.ErrNotExist) { // the owner key may have been removed
			continue
		}
		if err != nil {
			return c, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w: run this as the agent's user", err)
		}
		if name == storeKeyFile {
			if data, err = keyIn(cfg, data); err != nil {
				return c, err
			}
		}
		src.Files[name] = data
	}
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{Existing: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	src.Store = st
	return backup.Write(ctx, w, src)
}

// Restore restores a backup, read from in, into an empty store and a data directory
// without other keys that no agent uses. The whole backup is checked before anything
// changes. After an interruption no agent starts on the incomplete state, and Restore
// can be repeated.
func Restore(ctx context.Context, cfg *config.Piped, in io.ReadSeeker) (c backup.Contents, err error) {
	if c, err = backup.Read(ctx, in, func(store.Table, []any) error { return nil }); err != nil {
		return c, err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return c, fmt.Errorf("read the backup again: %w", err)
	}
	unlock, err := lockDataDir(ctx, cfg.DataDir)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	missing, err := missingFiles(cfg, c.Files)
	if err != nil {
		return c, err
	}
	return c, store.Restore(ctx, cfg.Store.DSN.Reveal(), c.Schema, func(put store.Put) error {
		for _, name := range missing {
			if err := writeSecret(keptPath(cfg, name), c.Files[name]); err != nil {
				return fmt.Errorf("write %s into the data directory: %w", name, err)
			}
		}
		_, err := backup.Read(ctx, in, put)
		return err
	})
}

// keptPath returns the path of one of keptFiles.
func keptPath(cfg *config.Piped, name string) string {
	if name == storeKeyFile {
		return storeKeyPath(cfg)
	}
	return filepath.Join(cfg.DataDir, name)
}

// missingFiles returns the files of a backup that the agent lacks. Existing ones must be equal:
// they may be the only keys of another store.
func missingFiles(cfg *config.Piped, files map[string][]byte) (missing []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.Contains(keptFiles, name) {
			return nil, deploy.Errorf(deploy.Invalid, "the backup has a file %s, which this version of piped does not know: use the one that wrote it", name)
		}
		path := keptPath(cfg, name)
		there, err := os.ReadFile(path)
		if name == storeKeyFile {
			if key, keyErr := keyIn(cfg, there); keyErr == nil {
				there = key // it may be in base64
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return nil, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w: run this as the agent's user", err)
		case !bytes.Equal(there, files[name]):
			return nil, deploy.Errorf(deploy.Exists, "%s is not that of the backup: move it away, or give the agent another spec.dataDir or store.keyFile", path)
		}
	}
	return missing, nil
}

// hasRun rejects a data directory in which no agent has run.
func hasRun(cfg *config.Piped) error {
	file := storeKeyFile
	if cfg.Store.KeyFile != "" { // which exists before the first start
		file = lockFile
	}
	_, err := os.Stat(filepath.Join(cfg.DataDir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return deploy.Errorf(deploy.Invalid, "no agent has run in the data directory %s (spec.dataDir): its first start writes a key to %s there", cfg.DataDir, ownerKeyFile)
	}
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w: run this as the agent's user", err)
	}
	return nil
}
