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

// lockFile is the file in the data directory that the agent locks.
const lockFile = "lock"

// announce writes the address of the control API into the data directory, for clients on this
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
		return deploy.Errorf(deploy.Invalid, "data directory (spec.dataDir): write the address of the control API: %w", err)
	}
	return nil
}

// lockPatience is how long the lock of a killed agent may remain: processes that it was
// starting have copies of its file descriptor.
const lockPatience = 5 * time.Second

// lockDataDir creates the data directory and locks it for this process: two agents on one
// directory would destroy each other's mirrors.
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
	return func() error { // explicitly: processes that are being started have copies of the file
		return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
	}, nil
}
