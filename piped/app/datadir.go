package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/endpoint"
	"github.com/c785c783/piped/piped/deploy"
)

// lockFile is the file in the data directory that the agent holds a lock on.
const lockFile = "lock"

// announce says in the data directory where the control API is, for clients on this
// machine.
func announce(cfg *config.Piped, address, ownerKey string) error {
	e := endpoint.Endpoint{Address: endpoint.Local(address), CertFile: cfg.API.TLSCertFile, OwnerKeyFile: ownerKey}
	for _, file := range []*string{&e.CertFile, &e.OwnerKeyFile} {
		if *file == "" {
			continue
		}
		absolute, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = absolute
	}
	if err := endpoint.Write(cfg.DataDir, e); err != nil {
		return deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): say where the control API is: %w", err)
	}
	return nil
}

// lockPatience is how long the lock of an agent that has ended may be held still: by the
// copies of its file that programs have which it was starting.
const lockPatience = 5 * time.Second

// lockDataDir makes the data directory and takes it for this process: two
// agents on one directory would destroy each other's mirrors.
func lockDataDir(ctx context.Context, dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return nil, errors.Join(deploy.Errorf(deploy.Invalid, "another agent uses the data directory %s: stop it, or give this one its own spec.dataDir", dir), file.Close())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return file.Close, nil
}
