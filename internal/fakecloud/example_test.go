package fakecloud_test

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// A test creates a cloud, configures the SDK for it, and checks the ledger.
func Example() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	cloud := fakecloud.New(fakecloud.Options{Clock: clock, Seed: 1, Knobs: fakecloud.Knobs{
		AccountCreation: fakecloud.Fixed(30 * time.Second),
		LostResponses:   0.5,
	}})
	demo := cloud.SeedDemo()
	endpoint := cloud.Start()
	defer endpoint.Close()

	accounts, err := armstorage.NewAccountsClient(demo.Subscription, endpoint.Credential("manager-1"), endpoint.ClientOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	// The account is created whether or not the response arrives.
	_, _ = accounts.BeginCreate(context.Background(), demo.Group, "data1", armstorage.AccountCreateParameters{
		Location: to.Ptr(demo.Location), Kind: to.Ptr(armstorage.KindStorageV2),
		SKU: &armstorage.SKU{Name: to.Ptr(armstorage.SKUNameStandardLRS)},
	}, nil)
	clock.Step(30 * time.Second)
	account, err := accounts.GetProperties(context.Background(), demo.Group, "data1", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*account.Properties.ProvisioningState, "and created", cloud.Created("storageAccounts/data1"), "time")
	// Output: Succeeded and created 1 time
}
